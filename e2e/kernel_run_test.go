//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

const (
	enableEnv = "ROCEV2_E2E"        // set: run the tests against kernel guests; "require": fail where they cannot run
	outEnv    = "ROCEV2_E2E_OUT"    // directory for what failures leave behind
	binEnv    = "ROCEV2_E2E_BIN"    // the program under test, instead of building it
	matrixEnv = "ROCEV2_E2E_MATRIX" // file for the matrix as Markdown
	pairEnv   = "ROCEV2_E2E_PAIR"   // "all": the whole matrix also between two kernels
)

const (
	lossPercent = 2
	grace       = 15 * time.Second // for a tool to end after its peer has ended well
	maxFaults   = 2                // attempts that a kernel may spoil
	graceFailed = 3 * time.Second  // and after its peer has failed
)

// startLab boots the guests or skips the test with the reason.
func startLab(t *testing.T) *guest.Lab {
	t.Helper()
	if os.Getenv(enableEnv) == "" {
		t.Skipf("tests against kernel guests run with %s=1 (make e2e-rxe)", enableEnv)
	}
	// The first run downloads and builds; booting takes seconds.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	lab, err := guest.Start(ctx, guest.Options{Logf: t.Logf})
	var u *guest.Unavailable
	if errors.As(err, &u) && os.Getenv(enableEnv) != "require" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range lab.Guests {
			for line := range strings.Lines(g.Serial()) {
				if strings.Contains(line, "BUG:") || strings.Contains(line, "Oops") || strings.Contains(line, "Kernel panic") {
					t.Errorf("kernel of guest %s: %s", g.Line, strings.TrimSpace(line))
				}
			}
		}
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// side is one end of a cell: where its tool runs and with which arguments.
type side struct {
	node guest.Node
	argv func(port int, server string) []string
	addr string // by which a client reaches this side's tool; IPv4, all that the field's tools listen on
}

func kernelSide(g *guest.Guest, c cell) side {
	return side{
		node: g,
		argv: func(port int, server string) []string { return c.kernelArgv(g, port, server) },
		addr: g.Addr4.String(),
	}
}

func ourSide(h *guest.Host, bin string, peer *guest.Guest, c cell) side {
	return side{
		node: h.Unprivileged(),
		argv: func(port int, server string) []string { return c.ourArgv(bin, peer, port, server) },
		addr: peer.Host4.String(),
	}
}

// run is one cell with everything decided.
type run struct {
	cell           cell
	client, server side
	clientAddr     string // of the RoCE traffic
	serverAddr     string
	ours           string // address of ours, for tshark; "" = neither side
	tap            string
	host           *guest.Host
	logf           func(format string, args ...any)
	out            string // directory for capture and output, made if needed
}

var nextPort atomic.Int32

// do runs the cell. What it leaves in r.out is for people.
func (r *run) do(ctx context.Context) error {
	limit := 60 * time.Second
	if r.cell.lossy {
		limit = 120 * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	capt, err := startCapture(context.WithoutCancel(ctx), r.host, r.tap, filepath.Join(r.out, "frames.pcap"))
	if err != nil {
		return err
	}
	toolErr := r.tools(ctx)
	dropped, err := capt.stop()
	if err != nil {
		return errors.Join(toolErr, err)
	}
	// Also after a failure: what went over the wire may say whose fault it
	// was.
	return errors.Join(toolErr, r.check(context.WithoutCancel(ctx), capt.file, dropped))
}

// tools runs server and client to their ends and writes down what they said.
func (r *run) tools(ctx context.Context) error {
	port := int(20000 + nextPort.Add(1)%10000)
	srv, err := r.server.node.Start(ctx, r.server.argv(port, "")...)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer r.record("server", r.server.node, srv)
	listening, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, stop)
	go func() {
		<-srv.Done()
		stop() // a server that ended will not listen
	}()
	if err := r.server.node.WaitListen(listening, port); err != nil {
		_ = srv.Signal(syscall.SIGKILL)
		return errors.Join(fmt.Errorf("server does not listen on port %d: %w", port, err), ended("server", srv))
	}
	cl, err := r.client.node.Start(ctx, r.client.argv(port, r.server.addr)...)
	if err != nil {
		_ = srv.Signal(syscall.SIGKILL)
		return fmt.Errorf("client: %w", err)
	}
	defer r.record("client", r.client.node, cl)
	// Whoever is last gets some time; then it is waiting for nobody.
	first, last := cl, srv
	select {
	case <-cl.Done():
	case <-srv.Done():
		first, last = srv, cl
	}
	timeout := grace
	if res, err := first.Wait(); err != nil || res.Err() != nil {
		timeout = graceFailed
	}
	late := time.AfterFunc(timeout, func() { _ = last.Signal(syscall.SIGKILL) })
	defer late.Stop()
	return errors.Join(ended("client", cl), ended("server", srv))
}

// ended waits for a tool and returns an error unless it succeeded.
func ended(role string, p *guest.Process) error {
	res, err := p.Wait()
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", role, strings.Join(p.Argv, " "), err)
	}
	return nil
}

func (r *run) record(role string, n guest.Node, p *guest.Process) {
	<-p.Done()
	stdout, stderr := p.Output()
	text := fmt.Sprintf("on %s: %s\n--- standard output\n%s--- standard error\n%s", n.Name(), strings.Join(p.Argv, " "), stdout, stderr)
	_ = os.WriteFile(filepath.Join(r.out, role+".txt"), []byte(text), 0o644) // for people; the test does not depend on it
}

// check looks at what went over the wire. Its error is a *kernelFault when the
// kernel broke the protocol and nothing is wrong with what we sent.
func (r *run) check(ctx context.Context, file string, dropped int) error {
	sum, err := checkCapture(file)
	if err != nil {
		return err
	}
	wantClient, wantServer := r.cell.expected()
	if dropped > 0 {
		r.logf("the capture lacks %d frames; the amount of traffic is not checked", dropped)
	}
	var errs []error
	var theirs *kernelFault
	for _, w := range []struct {
		role, addr string
		want       traffic
	}{{"client", r.clientAddr, wantClient}, {"server", r.serverAddr, wantServer}} {
		got := sum[netip.MustParseAddr(w.addr)]
		if got == nil {
			got = &traffic{}
		}
		if dropped == 0 && (got.frames == 0 && !r.cell.silent(w.want) || got.payload < w.want.payload || got.atomics < w.want.atomics) {
			errs = append(errs, fmt.Errorf("the %s at %s sent %d frames with %d bytes and %d atomics; expected at least %d bytes and %d atomics",
				w.role, w.addr, got.frames, got.payload, got.atomics, w.want.payload, w.want.atomics))
		}
		if got.changed != "" && w.addr != r.ours {
			theirs = &kernelFault{w.addr, got.changed}
		} else if got.changed != "" {
			errs = append(errs, fmt.Errorf("we broke the protocol: %s", got.changed))
		}
		if r.cell.sample && w.addr == r.ours {
			errs = append(errs, checkDissector(ctx, file, netip.MustParseAddr(w.addr), got.frames))
		}
	}
	if err := errors.Join(errs...); err != nil || theirs == nil {
		return err // ours, or unexplained: a fault of the kernel is no excuse
	}
	return theirs
}

// kernelFault says that a kernel peer sent another packet under a PSN that it
// had used. Linux rxe 6.12 was seen to do so between two kernels, on a starved
// machine: a WRITE LAST under the PSN of an earlier WRITE FIRST; a NAK for an
// invalid request from Linux 6.1 followed. Why is not known.
type kernelFault struct{ addr, what string }

func (e *kernelFault) Error() string {
	return fmt.Sprintf("the kernel at %s sent again something else: %s", e.addr, e.what)
}

// failureDir is where a failing cell leaves its capture and output.
func failureDir(t *testing.T) string {
	dir := os.Getenv(outEnv)
	if dir == "" {
		dir = "failures"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_"))
}

// runCell runs a cell as the body of a test, keeps what a failure needs, and
// returns how many attempts a fault of the kernel spoilt.
func runCell(t *testing.T, r *run, guests ...*guest.Guest) (faults int) {
	t.Helper()
	keep := failureDir(t)
	r.out, r.logf = keep, t.Logf
	for {
		if err := os.RemoveAll(keep); err != nil {
			t.Fatal(err)
		}
		err := r.do(t.Context())
		var fault *kernelFault
		switch {
		case err == nil:
			if err := os.RemoveAll(keep); err != nil {
				t.Error(err)
			}
			_ = os.Remove(filepath.Dir(keep)) // only when empty
			return faults
		case errors.As(err, &fault) && faults < maxFaults:
			faults++
			evidence := fmt.Sprintf("%s.kernel-fault-%d", keep, faults)
			if err := errors.Join(os.RemoveAll(evidence), os.Rename(keep, evidence)); err != nil {
				t.Fatal(err)
			}
			t.Logf("repeated: %v\ncapture and output of both sides: %s", err, evidence)
		default:
			for _, g := range guests {
				_ = os.WriteFile(filepath.Join(keep, "serial."+g.Line+".txt"), []byte(g.Serial()), 0o644) // best effort
			}
			t.Errorf("%v\ncapture, output of both sides and consoles: %s", err, keep)
			return faults
		}
	}
}
