package programs

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
	"github.com/gosoftroce/rocev2/verbs"
)

// program compiles a program of testdata with libibverbs. Where that is not
// possible, the test is skipped.
func program(t testing.TB, name string) string {
	t.Helper()
	cc := testprogram.NeedCC(t)
	reachPrograms(t)
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("there are no headers of libibverbs: install libibverbs-dev")
	}
	bin := filepath.Join(t.TempDir(), name)
	compileFor(t, cc, "-o", bin, "testdata/"+name+".c", "-libverbs", "-lpthread")
	return bin
}

// reachPrograms skips a test where this process is not as wide as programs.
func reachPrograms(t testing.TB) {
	t.Helper()
	if strconv.IntSize == 32 {
		t.Skip("a daemon of 32 bits does not reach the memory of programs of 64: run it in one of 64")
	}
}

// TestVerbs runs a case of testdata/verbs.c on a device.
func TestVerbs(t *testing.T) {
	t.Parallel()
	lib, check := beside(t), program(t, "verbs")
	for _, name := range []string{"counters", "burst"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := hostOf(t, Config{}, verbs.Config{})
			silent(t, preloaded(t, lib, h.config.Dir, check, name))
		})
	}
}

// TestDaemonGone: polls do not go on for ever when the daemon has gone: not
// those of an extended queue, and not those that wait.
func TestDaemonGone(t *testing.T) {
	t.Parallel()
	lib, check := beside(t), program(t, "verbs")
	for _, name := range []string{"startpoll", "dead", "waits"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := realHost(t, Config{})
			cmd := preloaded(t, lib, h.config.Dir, check, name)
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
