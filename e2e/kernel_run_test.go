//go:build linux

package e2e

import (
	"cmp"
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
	outEnv    = "ROCEV2_E2E_OUT"    // directory for what is kept of failures
	binEnv    = "ROCEV2_E2E_BIN"    // the program under test, and rocev2d beside it, instead of building them
	matrixEnv = "ROCEV2_E2E_MATRIX" // file for the matrix as Markdown
	pairEnv   = "ROCEV2_E2E_PAIR"   // "all": the whole matrix also between two kernels
)

const (
	lossPercent = 2
	grace       = 15 * time.Second // for a tool to end after its peer has ended well
	maxFaults   = 2                // attempts that a kernel may spoil
	graceFailed = 3 * time.Second  // and after its peer has failed

	// disconnecting is how long Linux waits for the answer to a DREQ, all
	// retries together. Answers that were lost are not repeated by a
	// program that has ended. perftest waits for them, and so do all of
	// librdmacm but rping. It is also longer than our servers wait for a
	// client that says nothing more (60 s): they end by themselves.
	disconnecting = 110 * time.Second
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

// scenario is what a cell runs, in whichever role. Its values are comparable.
type scenario interface {
	name() string    // of the test, below the role
	title() string   // of its group in the matrix
	rowName() string // in the group, for people
	traits() traits
	playable(weServe bool) bool // in this role

	// The arguments of both sides. server is "" for the server.
	kernelArgv(g *guest.Guest, port int, server string) []string
	ourArgv(bin string, g *guest.Guest, port int, server string) []string

	// expected is the least that client and server must have put on the
	// wire. silent reports whether a side may send nothing at all.
	expected() (client, server traffic)
	silent(want traffic) bool

	// left looks at what the tools have left when both succeeded. server is
	// nil if it runs for ever.
	left(ctx context.Context, bin string, g *guest.Guest, weServe bool, server *guest.Process) error
}

// traits are what the runner wants to know of a scenario.
type traits struct {
	ipv6   bool
	lossy  bool    // the guest loses packets in both directions
	sample bool    // the dissectors read the capture
	meets  meeting // how the two sides find each other

	patience time.Duration  // for the last side to end; 0 = grace
	ends     syscall.Signal // 0, or what a server is sent when its client is done: it serves for ever
}

// meeting is how a client finds its server.
type meeting struct {
	space string // "" = a TCP port of the test's choice, over IPv4; "TCP", "UDP": a port space of the connection manager; groupSpace
	port  int    // of the connection manager; 0 = of the test's choice
}

// side is one end of a cell: where its tool runs and with which arguments. The
// zero value is a server that runs already.
type side struct {
	node  guest.Node
	argv  func(port int, server string) []string
	addr  string // by which a client reaches this side's tool
	ready func(ctx context.Context, p *guest.Process, port int) error
	ends  syscall.Signal
}

func kernelSide(g *guest.Guest, c scenario) side {
	s := side{
		node: g,
		argv: func(port int, server string) []string { return c.kernelArgv(g, port, server) },
		addr: g.Addr4.String(), ends: c.traits().ends,
		ready: func(ctx context.Context, _ *guest.Process, port int) error { return g.WaitListen(ctx, port) },
	}
	if m := c.traits().meets; m.space != "" {
		s.addr = g.Addr(c.traits().ipv6).String()
		s.ready = func(ctx context.Context, _ *guest.Process, port int) error {
			return m.inGuest(ctx, g, cmp.Or(m.port, port))
		}
	}
	return s
}

func ourSide(h *guest.Host, bin string, peer *guest.Guest, c scenario) side {
	s := side{
		node: h.Unprivileged(),
		argv: func(port int, server string) []string { return c.ourArgv(bin, peer, port, server) },
		addr: peer.Host4.String(), ends: c.traits().ends,
		ready: func(ctx context.Context, _ *guest.Process, port int) error {
			return h.WaitListen(ctx, port)
		},
	}
	if m := c.traits().meets; m.space != "" {
		s.addr = peer.Host(c.traits().ipv6).String()
		s.ready = func(ctx context.Context, p *guest.Process, _ int) error { return saysWaiting(ctx, p) }
		if m.space == groupSpace {
			s.ready = func(ctx context.Context, _ *guest.Process, _ int) error { return member(ctx, h, "br0", groupOf(peer)) }
		}
	}
	return s
}

// inGuest returns when a program in the guest listens, or takes part in the
// group: a server of the connection manager has no socket to be seen.
func (m meeting) inGuest(ctx context.Context, g *guest.Guest, port int) error {
	if m.space == groupSpace {
		return member(ctx, g, "eth0", groupOf(g))
	}
	return until(ctx, g, fmt.Sprintf("rdma res show cm_id | grep -q 'LISTEN ps %s .*:%d '", m.space, port))
}

// member returns when an interface takes part in a group.
func member(ctx context.Context, n guest.Node, dev string, group netip.Addr) error {
	return until(ctx, n, fmt.Sprintf("ip maddr show dev %s | grep -q 'inet *%v *$'", dev, group))
}

// until returns when a command line succeeds.
func until(ctx context.Context, n guest.Node, line string) error {
	_, err := guest.Run(ctx, n, "sh", "-c", "until "+line+"; do sleep 0.05; done")
	return err
}

// saysWaiting returns when our program says that it listens.
func saysWaiting(ctx context.Context, p *guest.Process) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, stderr := p.Output(); strings.Contains(stderr, "waiting on port") {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it does not say that it waits: %w", context.Cause(ctx))
		}
	}
}

// run is one cell with everything decided.
type run struct {
	cell           scenario
	client, server side
	clientAddr     string // of the RoCE traffic
	serverAddr     string
	ours           string // address of ours, for tshark; "" = neither side
	tap            string
	host           *guest.Host
	logf           func(format string, args ...any)
	out            string // directory for capture and output, made if needed

	// left, if set, looks at what the tools have left when they succeeded.
	left func(ctx context.Context, server *guest.Process) error
}

var nextPort atomic.Int32

// do runs the cell. What it leaves in r.out is for people.
func (r *run) do(ctx context.Context) error {
	limit := 60 * time.Second
	if r.cell.traits().lossy {
		limit = 120*time.Second + r.cell.traits().patience
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
	srv, toolErr := r.tools(ctx)
	if toolErr == nil && r.left != nil {
		toolErr = r.left(ctx, srv)
	}
	dropped, err := capt.stop()
	if err != nil {
		return errors.Join(toolErr, err)
	}
	// Also after a failure: what went over the wire may say whose fault it
	// was.
	sum, checkErr := r.check(context.WithoutCancel(ctx), capt.file, dropped)
	if checkErr == nil && dropped == 0 {
		toolErr = r.unheard(toolErr, sum)
	}
	if fault := (*kernelFault)(nil); checkErr != nil && errors.As(toolErr, &fault) {
		return fmt.Errorf("%v\n%w", toolErr, checkErr) // the tool is no excuse
	}
	return errors.Join(toolErr, checkErr)
}

// tools runs server and client to their ends, writes down what they said, and
// returns the server.
func (r *run) tools(ctx context.Context) (srv *guest.Process, err error) {
	port := int(20000 + nextPort.Add(1)%10000)
	if r.server.node != nil {
		if srv, err = r.serve(ctx, port); srv != nil {
			defer r.record("server", r.server.node, srv)
		}
		if err != nil {
			return nil, err
		}
	}
	cl, err := r.client.node.Start(ctx, r.client.argv(port, r.server.addr)...)
	if err != nil {
		if srv != nil {
			_ = srv.Signal(syscall.SIGKILL)
		}
		return nil, fmt.Errorf("client: %w", err)
	}
	defer r.record("client", r.client.node, cl)
	switch {
	case srv == nil:
		return nil, ended("client", cl)
	case r.server.ends != 0:
		return srv, r.endless(srv, cl)
	}
	return srv, bothEnded(srv, cl, cmp.Or(r.cell.traits().patience, grace))
}

// bothEnded waits for both. The last one gets some time; after that it waits
// for a peer that has gone.
func bothEnded(srv, cl *guest.Process, timeout time.Duration) error {
	first, last := cl, srv
	select {
	case <-cl.Done():
	case <-srv.Done():
		first, last = srv, cl
	}
	if res, err := first.Wait(); err != nil || res.Err() != nil {
		timeout = graceFailed
	}
	late := time.AfterFunc(timeout, func() { _ = last.Signal(syscall.SIGKILL) })
	clErr, srvErr := ended("client", cl), ended("server", srv)
	if late.Stop() && first == cl && clErr == nil && srvErr != nil && cl.Argv[0] == "rping" {
		return &forsaken{srvErr}
	}
	return errors.Join(clErr, srvErr)
}

// forsaken is the error of a server that ended by itself, after its client, the
// original rping, had ended well.
type forsaken struct{ error }

// unheard finds out why a server is forsaken. The original rping sends a DREQ
// when it has all its pings, and ends without waiting for the answer: then its
// kernel does not send the DREQ again. If that one is lost, no server can know
// that the client is done. The original would wait for ever.
func (r *run) unheard(toolErr error, sum map[netip.Addr]*traffic) error {
	var alone *forsaken
	if !errors.As(toolErr, &alone) || !r.cell.traits().lossy {
		return toolErr
	}
	if c := sum[netip.MustParseAddr(r.clientAddr)]; c == nil || c.managed.dreq > 0 {
		return toolErr // the server could know
	}
	return &kernelFault{"rping", "the only DREQ of the client was lost, and it did not wait: " + alone.Error()}
}

// serve starts the server and returns when clients can come.
func (r *run) serve(ctx context.Context, port int) (*guest.Process, error) {
	srv, err := r.server.node.Start(ctx, r.server.argv(port, "")...)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	listening, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-srv.Done():
			stop() // a server that ended will not listen
		case <-listening.Done():
		}
	}()
	if err := r.server.ready(listening, srv, port); err != nil {
		_ = srv.Signal(syscall.SIGKILL)
		return srv, errors.Join(fmt.Errorf("server does not listen on port %d: %w", port, err), ended("server", srv))
	}
	return srv, nil
}

// endless waits for the client alone. The server goes on until it is told to
// end, and must be there then.
func (r *run) endless(srv, cl *guest.Process) error {
	err := ended("client", cl)
	select {
	case <-srv.Done():
		return errors.Join(err, ended("server", srv), errors.New("the server, which has no end, has ended"))
	default:
	}
	_ = srv.Signal(r.server.ends)
	late := time.AfterFunc(graceFailed, func() { _ = srv.Signal(syscall.SIGKILL) })
	defer late.Stop()
	<-srv.Done()
	return err
}

// ended waits for a tool and returns an error unless it succeeded.
func ended(role string, p *guest.Process) error {
	res, err := p.Wait()
	if err == nil {
		err = res.Err()
	}
	if err != nil && rpingRace(p, res) {
		err = &kernelFault{"rping", "its threads raced at the end: " + err.Error()}
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", role, strings.Join(p.Argv, " "), err)
	}
	return nil
}

// rpingRace reports whether an original rping has failed by itself, when its
// work was done: its main thread closes the event channel, and its thread that
// waits for events finds that out and ends the process with 255 before the main
// thread ends it with 0.
func rpingRace(p *guest.Process, res *guest.Result) bool {
	return p.Argv[0] == "rping" && res != nil && res.Code == 255 && strings.Contains(res.Stderr, "DISCONNECT EVENT") &&
		strings.Contains(res.Stderr, "rdma_get_cm_event: Bad file descriptor")
}

func (r *run) record(role string, n guest.Node, p *guest.Process) {
	<-p.Done()
	stdout, stderr := p.Output()
	text := fmt.Sprintf("on %s: %s\n--- standard output\n%s--- standard error\n%s", n.Name(), strings.Join(p.Argv, " "), stdout, stderr)
	_ = os.WriteFile(filepath.Join(r.out, role+".txt"), []byte(text), 0o644) // for people; the test does not depend on it
}

// check looks at what went over the wire. Its error is a *kernelFault when the
// kernel broke the protocol and nothing is wrong with what we sent.
func (r *run) check(ctx context.Context, file string, dropped int) (map[netip.Addr]*traffic, error) {
	sum, err := checkCapture(file)
	if err != nil {
		return nil, err
	}
	wantClient, wantServer := r.cell.expected()
	if dropped > 0 {
		r.logf("the capture lacks %d frames; the amount of traffic is not checked", dropped)
	}
	var errs []error
	var theirs *kernelFault
	if r.cell.traits().sample {
		errs = append(errs, checkDissect(file, sum))
	}
	for _, w := range []struct {
		role, addr string
		want       traffic
	}{{"client", r.clientAddr, wantClient}, {"server", r.serverAddr, wantServer}} {
		got := sum[netip.MustParseAddr(w.addr)]
		if got == nil {
			got = &traffic{}
		}
		if dropped == 0 && (got.frames == 0 && !r.cell.silent(w.want) || !got.covers(w.want)) {
			errs = append(errs, fmt.Errorf("the %s at %s sent %v; expected at least %v", w.role, w.addr, got, &w.want))
		}
		if got.changed != "" && w.addr != r.ours {
			theirs = &kernelFault{"the kernel at " + w.addr, "it sent again something else: " + got.changed}
		} else if got.changed != "" {
			errs = append(errs, fmt.Errorf("we broke the protocol: %s", got.changed))
		}
		if r.cell.traits().sample && w.addr == r.ours {
			errs = append(errs, checkDissector(ctx, file, netip.MustParseAddr(w.addr), got.frames))
		}
	}
	if err := errors.Join(errs...); err != nil || theirs == nil {
		return sum, err // ours, or unexplained: a fault of the kernel is no excuse
	}
	return sum, theirs
}

// kernelFault says that a kernel, or a tool of the field, did something that is
// wrong whatever we do. A kernel peer sent another packet under a PSN that it
// had used: Linux rxe 6.12 was seen to do so between two kernels, on a starved
// machine: a WRITE LAST under the PSN of an earlier WRITE FIRST; a NAK for an
// invalid request from Linux 6.1 followed. Why is not known. Of rping, see
// rpingRace and unheard.
type kernelFault struct{ who, what string }

func (e *kernelFault) Error() string { return fmt.Sprintf("a fault of %s: %s", e.who, e.what) }

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
