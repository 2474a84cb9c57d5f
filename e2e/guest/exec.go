//go:build linux

package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest/proto"
)

// Node is a place where programs run: a guest, or our side of the bridge.
type Node interface {
	// Name is for messages: "6.1", "6.12", "host".
	Name() string
	// Start starts a program. It is killed when ctx ends; a deadline of ctx
	// counts in the guest too.
	Start(ctx context.Context, argv ...string) (*Process, error)
	// WaitListen returns when a TCP socket listens on port. It does not
	// connect: the servers of this field serve one connection.
	WaitListen(ctx context.Context, port int) error
}

// Result is what came of a program that has ended.
type Result struct {
	Code   int // exit status; 128+n after signal n
	Stdout string
	Stderr string
}

// Err is nil for exit status 0, and an error with the output's end otherwise.
func (r *Result) Err() error {
	if r.Code == 0 {
		return nil
	}
	return fmt.Errorf("exit status %d: %s", r.Code, strings.TrimSpace(tail(r.Stdout+r.Stderr, 8)))
}

// Process is a running program.
type Process struct {
	Argv           []string
	PID            int // 0 in a guest
	stdout, stderr output
	signal         func(syscall.Signal) error
	done           chan struct{}
	code           int   // valid after done
	err            error // valid after done
}

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal to the program's process group in a guest, to the
// program alone on our side.
func (p *Process) Signal(s syscall.Signal) error { return p.signal(s) }

// Output returns what the program has printed so far.
func (p *Process) Output() (stdout, stderr string) { return p.stdout.String(), p.stderr.String() }

// Wait returns when the program has ended. The error is about running it, for
// example a deadline; an exit status other than 0 is no error here.
func (p *Process) Wait() (*Result, error) {
	<-p.done
	r := &Result{Code: p.code}
	r.Stdout, r.Stderr = p.Output()
	return r, p.err
}

// Run runs a program on a node to its end. An exit status other than 0 is an
// error, with the result beside it.
func Run(ctx context.Context, n Node, argv ...string) (*Result, error) {
	p, err := n.Start(ctx, argv...)
	if err != nil {
		return nil, err
	}
	r, err := p.Wait()
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", n.Name(), strings.Join(argv, " "), err)
	}
	return r, err
}

// maxOutput bounds what is kept of one output stream.
const maxOutput = 4 << 20

// output collects a stream for readers in other goroutines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := maxOutput - o.b.Len(); room > 0 {
		o.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Stdio passes a program's streams through instead of collecting them.
type Stdio struct {
	In       io.Reader // nil: nothing to read
	Out, Err io.Writer
}

// startLocal starts a program of this machine.
func startLocal(ctx context.Context, cmd *exec.Cmd, argv []string) (*Process, error) {
	p := &Process{Argv: argv, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	p.signal = func(s syscall.Signal) error { return cmd.Process.Signal(s) }
	go func() {
		defer close(p.done)
		err := cmd.Wait()
		p.code = cmd.ProcessState.ExitCode()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			p.code = 128 + int(ws.Signal())
		}
		var ee *exec.ExitError
		if ctx.Err() != nil {
			p.err = fmt.Errorf("killed: %w", context.Cause(ctx))
		} else if err != nil && !errors.As(err, &ee) && !errors.Is(err, exec.ErrWaitDelay) {
			p.err = err
		}
	}()
	return p, nil
}

// request opens a conversation with a guest's agent.
func (g *Guest) request(ctx context.Context, r proto.Request) (net.Conn, *proto.Conn, error) {
	if d, ok := ctx.Deadline(); ok {
		r.Timeout = time.Until(d)
	}
	conn, err := g.ns.dial(ctx, net.JoinHostPort(g.ctl.String(), strconv.Itoa(proto.Port)))
	if err != nil {
		return nil, nil, fmt.Errorf("guest %s: %w", g.Line, err)
	}
	pc := proto.NewConn(conn)
	if err := pc.WriteJSON(proto.FrameRequest, r); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("guest %s: %w", g.Line, err)
	}
	return conn, pc, nil
}

// receive takes frames until the exit.
func receive(pc *proto.Conn, stdout, stderr io.Writer) (proto.Exit, error) {
	for {
		t, b, err := pc.Read()
		if err != nil {
			return proto.Exit{Code: -1}, err
		}
		switch t {
		case proto.FrameStdout:
			_, err = stdout.Write(b)
		case proto.FrameStderr:
			_, err = stderr.Write(b)
		case proto.FrameExit:
			return proto.ParseExit(b)
		}
		if err != nil {
			return proto.Exit{Code: -1}, err
		}
	}
}

// outcome turns how a conversation ended into what a caller wants to know.
func outcome(ctx context.Context, x proto.Exit, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("killed: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("guest: %w", err)
	case x.TimedOut:
		return fmt.Errorf("killed: %w", context.DeadlineExceeded)
	case x.Err != "":
		return fmt.Errorf("guest: %s", x.Err)
	}
	return nil
}

// Start starts a program in the guest.
func (g *Guest) Start(ctx context.Context, argv ...string) (*Process, error) {
	conn, pc, err := g.request(ctx, proto.Request{Op: proto.OpExec, Argv: argv})
	if err != nil {
		return nil, err
	}
	p := &Process{Argv: argv, done: make(chan struct{})}
	p.signal = func(s syscall.Signal) error { return pc.Write(proto.FrameSignal, []byte{byte(s)}) }
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // the agent kills what it ran
	go func() {
		defer close(p.done)
		defer conn.Close()
		defer stop()
		x, err := receive(pc, &p.stdout, &p.stderr)
		p.code, p.err = x.Code, outcome(ctx, x, err)
	}()
	return p, nil
}

// WaitListen returns when a TCP socket of the guest listens on port.
func (g *Guest) WaitListen(ctx context.Context, port int) error {
	conn, pc, err := g.request(ctx, proto.Request{Op: proto.OpWaitListen, Port: port})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	x, err := receive(pc, io.Discard, io.Discard)
	return outcome(ctx, x, err)
}

// Attach runs a program in the guest with the given streams and returns its
// exit status.
func (g *Guest) Attach(ctx context.Context, s Stdio, argv ...string) (int, error) {
	conn, pc, err := g.request(ctx, proto.Request{Op: proto.OpExec, Argv: argv, Stdin: s.In != nil})
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if s.In != nil {
		go func() {
			_, _ = io.Copy(pc.Writer(proto.FrameStdin), s.In)
			_ = pc.Write(proto.FrameStdinEOF, nil)
		}()
	}
	x, err := receive(pc, s.Out, s.Err)
	return x.Code, outcome(ctx, x, err)
}
