//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
	"github.com/gosoftroce/rocev2/programs/interop/target"
	"github.com/gosoftroce/rocev2/verbs"
)

// targetEnv tells TestTargetSide our address.
const targetEnv = "ROCEV2_E2E_TARGET"

// What the server says when it takes clients, and of each of them.
const (
	targetReady  = "takes clients"
	targetServed = "served "
)

// TestKernelTarget pings kernels, and has the field's own tools, unmodified, as
// clients of one server of ours, which is not told what comes. Then it has them
// talk to package rdma.
func TestKernelTarget(t *testing.T) {
	lab := startLab(t)
	bin := buildTool(t, lab.Host)
	t.Run("kernel", func(t *testing.T) {
		for _, g := range lab.Guests {
			t.Run(g.Line, func(t *testing.T) {
				t.Parallel() // every guest has an address of ours to itself
				for _, ipv6 := range []bool{false, true} {
					t.Run(fmt.Sprintf("ping/%v", g.Addr(ipv6)), func(t *testing.T) { pingKernel(t, lab.Host, bin, g.Host(ipv6), g.Addr(ipv6)) })
				}
				t.Run("clients", func(t *testing.T) { kernelClients(t, lab.Host, g) })
				t.Run("foreign", func(t *testing.T) { foreignPeers(t, lab.Host, g) })
			})
		}
	})
}

// targetClients are the clients, and what they must be taken for.
var targetClients = []struct{ argv, tool string }{
	{"ib_send_bw -n 200", "ib_send_bw"},
	{"ib_send_bw -n 50 -q 3 -s 2000", "ib_send_bw"},
	{"ib_send_bw -n 10 -a", "ib_send_bw"},
	{"ib_write_bw -n 200", "ib_write_bw"},
	{"ib_write_bw -n 50 -q 2", "ib_write_bw"},
	{"ib_read_bw -n 200", "ib_read_bw"},
	{"ib_atomic_bw -n 200", "ib_atomic_bw"},
	{"ib_send_lat -n 100", "ib_send_lat"},
	{"ib_write_lat -n 100", "ib_write_lat"},
	{"ib_write_lat -n 100 -s 3000", "ib_write_lat"},
	{"ib_read_lat -n 100", "ib_read_lat"},
	{"ib_atomic_lat -n 100", "ib_atomic_lat"},
	{"ibv_rc_pingpong -n 100", "ibv_rc_pingpong"},
	{"ibv_rc_pingpong -n 20 -s 9000 -c", "ibv_rc_pingpong"},
	{"ibv_srq_pingpong -n 100", "ibv_srq_pingpong"},
}

func kernelClients(t *testing.T, h *guest.Host, g *guest.Guest) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	us := h.Command(ctx, self, "-test.run=^TestTargetSide$", "-test.v")
	us.Env = append(os.Environ(), targetEnv+"="+g.Host4.String())
	said, err := us.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	us.Stderr = &errs
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(said)
	await := func(what string) string {
		t.Helper()
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				t.Fatalf("our server has ended: %v, %v: %s", err, us.Wait(), errs.String())
			}
			if strings.Contains(line, what) {
				return strings.TrimSpace(line)
			}
		}
	}
	await(targetReady)
	for _, c := range targetClients {
		argv := strings.Fields(c.argv)
		index := []string{"-x", strconv.Itoa(g.GIDIndex(false)), "-F", "-u", "17"}
		if strings.HasPrefix(argv[0], "ibv_") {
			index = []string{"-g", strconv.Itoa(g.GIDIndex(false))}
		}
		argv = append(append(append(argv[:1:1], "-d", "rxe0"), index...), argv[1:]...)
		limit, stop := context.WithTimeout(ctx, 2*time.Minute)
		res, err := guest.Run(limit, g, append(argv, g.Host4.String())...)
		stop()
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			t.Errorf("%s: %v", c.argv, err)
		}
		if line := await(targetServed); !strings.Contains(line, targetServed+c.tool+" ") || !strings.HasSuffix(line, "error <nil>") {
			t.Errorf("%s: %s", c.argv, line)
		}
	}
	if err := us.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	rest, _ := io.ReadAll(out) // what is missing is an error
	_ = us.Wait()              // it was ended
	if t.Failed() {
		t.Logf("our server: %s", rest)
	}
}

// TestTargetSide is the server of TestKernelTarget, in its network namespace.
// It serves until it is ended.
func TestTargetSide(t *testing.T) {
	addr := os.Getenv(targetEnv)
	if addr == "" {
		t.Skip("nothing is missing: TestKernelTarget runs it, in a process of its own")
	}
	dev, err := verbs.Open(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, "18515"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(targetReady)
	err = target.Serve(t.Context(), dev, ln, target.Config{OnClient: func(c target.Client) {
		fmt.Printf("%s%s of %v, %d messages of %d bytes, error %v\n", targetServed, c.Tool, c.Addr, c.Messages, c.Size, c.Err)
	}})
	t.Errorf("the server ended: %v", err)
}

// pingKernel asks a kernel by what rocev2 ping sends, and tests the way to it
// by rocev2 doctor.
func pingKernel(t *testing.T, h *guest.Host, bin string, ours, kernel netip.Addr) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for args, want := range map[string][]string{
		"ping -c 5 -i 0.2 -W 5": {"5 requests, 5 answers, 0% loss", "256 bytes from " + kernel.String()},
		"trace":                 {kernel.String() + " is one hop away", "answers RoCEv2 pings"},
		"doctor -c 5":           {"[ ok ] ping", "[ ok ] loss", "[ ok ] path mtu"},
	} {
		res, err := guest.Run(ctx, h.Unprivileged(), append(append([]string{bin}, strings.Fields(args)...), "-d", ours.String(), kernel.String())...)
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			t.Errorf("rocev2 %s: %v", args, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(res.Stdout, w) {
				t.Errorf("rocev2 %s: no %q in\n%s", args, w, res.Stdout)
			}
		}
	}
}
