package programs

import (
	"bufio"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs"
)

// program compiles a program of testdata with libibverbs. Where that cannot be,
// the test is skipped.
func program(t testing.TB, name string, args ...string) string {
	t.Helper()
	cc := needCC(t)
	reachPrograms(t)
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("there are no headers of libibverbs: install libibverbs-dev")
	}
	bin := filepath.Join(t.TempDir(), name)
	args = append([]string{"-O1", "-Wall", "-Wextra", "-o", bin, "testdata/" + name + ".c"}, args...)
	if out, err := exec.Command(cc, append(args, "-libverbs", "-lpthread")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// reachPrograms skips a test where this process is not as wide as programs.
func reachPrograms(t testing.TB) {
	t.Helper()
	if strconv.IntSize == 32 {
		t.Skip("a daemon of 32 bits does not reach the memory of programs of 64")
	}
}

var loopback = sync.OnceValue(func() func() netip.Addr {
	var mu sync.Mutex
	at, next := [2]byte{byte(1 + rand.IntN(250)), byte(rand.IntN(250))}, byte(0)
	return func() netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		next++
		return netip.AddrFrom4([4]byte{127, at[0], at[1], next})
	}
})

// realHost serves a device.
func realHost(t testing.TB, config Config) *Host {
	t.Helper()
	if config.Dir == "" {
		config.Dir = shortDir(t)
	}
	h, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if err := h.OpenDevice(loopback()(), verbs.Config{Loopback: true}); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestVerbs runs the cases of testdata/verbs.c on a device.
func TestVerbs(t *testing.T) {
	t.Parallel()
	lib, check := library(t), program(t, "verbs")
	for _, name := range []string{"import", "counters", "waits"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := realHost(t, Config{})
			cmd := exec.Command(check, name)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir)
			cmd.WaitDelay = 5 * time.Second // of a child that is left over
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestDaemonGone: polls do not go on for ever when the daemon has gone: not
// those of an extended queue, and not those that wait.
func TestDaemonGone(t *testing.T) {
	t.Parallel()
	lib, check := library(t), program(t, "verbs")
	for _, name := range []string{"startpoll", "dead"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := realHost(t, Config{})
			cmd := exec.Command(check, name)
			cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir)
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Errorf("%q, %v", line, err)
			}
			h.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPortFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p           verbs.PortAttr
		state, phys string
	}{
		{verbs.PortAttr{State: verbs.PortActive, PhysState: verbs.PhysLinkUp}, stateActive, physLinkUp},
		{verbs.PortAttr{State: verbs.PortDown, PhysState: verbs.PhysPolling}, stateDown, physPolling},
		{verbs.PortAttr{State: verbs.PortDown, PhysState: verbs.PhysDisabled}, stateDown, physDisabled},
	} {
		if f := portFiles(c.p); f["ports/1/state"] != c.state || f["ports/1/phys_state"] != c.phys {
			t.Errorf("%v: %v", c.p.State, f)
		}
	}
}
