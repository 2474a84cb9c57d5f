//go:build linux

package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

const (
	grace   = 20 * time.Second // for a server to end after its client has ended well
	give    = 2 * time.Second  // for what was told to end, or whose peer has failed
	listens = 20 * time.Second // for a server that is not to be seen to listen
	// For programs that are known to wait for ever.
	hopeless = 10 * time.Second
	outEnv   = "ROCEV2_E2E_OUT" // directory for what is kept of failures
)

// run runs a cell as the body of a test, keeps what its programs have said if
// it fails, and returns the note for the table. An emulated kernel that is not
// scheduled is like one that is gone to a ping-pong, which waits half a second.
// So a cell with a kernel has a second attempt.
func (c *cell) run(t *testing.T, st *stage) (note string) {
	t.Helper()
	note, log, err := c.attempt(t, st)
	if err != nil && c.known != "" {
		t.Logf("known: %s: %v", c.known, err)
		return c.known
	}
	if err != nil && st.kind >= kernelServes {
		t.Logf("repeated: %v", err)
		st.port++
		note, log, err = c.attempt(t, st)
		note = strings.TrimSpace(note + " *")
	}
	if err != nil {
		file := keep(t, log)
		t.Errorf("%v\nwhat the programs said: %s", err, file)
	}
	return note
}

func (c *cell) attempt(t *testing.T, st *stage) (note, log string, err error) {
	if c.prepare != nil {
		defer c.prepare()()
	}
	limit := max(c.limit, usual)
	if c.known != "" {
		limit = hopeless
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("the cell's time is over"))
	defer cancel()
	udp, tcp := sent(st)
	log, err = c.play(ctx, st)
	st.datagrams, st.segments = sent(st)
	st.datagrams -= udp
	st.segments -= tcp
	if err == nil && c.check != nil {
		note, err = c.check(st)
	}
	if err == nil && st.kind == twoOwners && c.client != nil && st.datagrams == 0 {
		err = errors.New("no datagram was sent")
	}
	return note, log, err
}

// play runs the programs to their ends.
func (c *cell) play(ctx context.Context, st *stage) (log string, err error) {
	var said []*guest.Process
	defer func() {
		for _, p := range said {
			stdout, stderr := p.Output()
			log += fmt.Sprintf("$ %s\n--- standard output\n%s--- standard error\n%s\n", strings.Join(p.Argv, " "), stdout, stderr)
		}
	}()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // kills what is left
	var srv *guest.Process
	if c.server != nil {
		if srv, err = st.server.node.Start(ctx, c.argv(st.server, c.server(st))...); err != nil {
			return "", err
		}
		said = append(said, srv)
		defer func() { stop(); <-srv.Done() }()
		if c.ready != nil {
			if err := c.whenReady(ctx, st, srv); err != nil {
				return "", err
			}
		}
	}
	if c.client != nil {
		cl, err := c.dial(ctx, st, srv)
		if cl != nil {
			said = append(said, cl)
			defer func() { stop(); <-cl.Done() }()
		}
		if err == nil {
			err = ended("client", cl, &st.clientOut)
		}
		if err != nil {
			return "", errors.Join(err, c.leave(srv, st, false))
		}
	}
	return "", c.leave(srv, st, true)
}

func (c *cell) argv(s *site, program []string) []string {
	if c.bare {
		return program
	}
	return s.argv(program)
}

// whenReady waits until a client may come, or the server has ended.
func (c *cell) whenReady(ctx context.Context, st *stage, srv *guest.Process) error {
	ctx, stop := context.WithTimeout(ctx, listens)
	defer stop()
	go func() {
		select {
		case <-srv.Done():
			stop()
		case <-ctx.Done():
		}
	}()
	if err := c.ready(ctx, st, srv); err != nil {
		return errors.Join(fmt.Errorf("the server is not ready: %w", err), c.leave(srv, st, false))
	}
	return nil
}

// dial starts the client. Whether a server of the connection manager listens is
// not to be seen from outside, so a client that fails at once, while its server
// waits, comes again.
func (c *cell) dial(ctx context.Context, st *stage, srv *guest.Process) (*guest.Process, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); ; {
		cl, err := st.client.node.Start(ctx, c.argv(st.client, c.client(st))...)
		if err != nil || !c.retry {
			return cl, err
		}
		select {
		case <-cl.Done():
		case <-srv.Done():
			return cl, nil
		}
		r, err := cl.Wait()
		if err == nil && r.Err() == nil || time.Since(start) > listens {
			return cl, nil
		}
		select {
		case <-srv.Done():
			return cl, nil
		case <-ctx.Done():
			return cl, nil
		case <-tick.C:
		}
	}
}

// leave waits for the end of the server.
func (c *cell) leave(srv *guest.Process, st *stage, well bool) error {
	if srv == nil {
		return nil
	}
	wait := grace
	if c.client == nil && !c.endless {
		wait = 0 // its context ends it
	}
	if c.endless {
		select {
		case <-srv.Done():
			return errors.Join(errors.New("the server, which has no end, has ended"), ended("server", srv, &st.serverOut))
		default:
		}
		_ = srv.Signal(syscall.SIGTERM) // it may have ended
	}
	if c.endless || !well {
		wait = give
	}
	if wait > 0 {
		late := time.AfterFunc(wait, func() { _ = srv.Signal(syscall.SIGKILL) })
		defer late.Stop()
	}
	err := ended("server", srv, &st.serverOut)
	if c.endless && well {
		return nil
	}
	return err
}

// ended waits for a program and returns an error unless it succeeded.
func ended(role string, p *guest.Process, out *guest.Result) error {
	r, err := p.Wait()
	*out = *r
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", role, strings.Join(p.Argv, " "), err)
	}
	return nil
}

// sent is how many datagrams of UDP and segments of TCP our side has sent.
func sent(st *stage) (datagrams, segments int) {
	for _, s := range []*site{st.server, st.client} {
		if _, theirs := s.node.(*guest.Guest); theirs {
			continue
		}
		r, err := guest.Run(context.Background(), s.node, "cat", "/proc/net/snmp")
		if err != nil {
			return 0, 0
		}
		return counter(r.Stdout, "Udp:", "OutDatagrams"), counter(r.Stdout, "Tcp:", "OutSegs")
	}
	return 0, 0
}

// counter finds a number in /proc/net/snmp: a line has the names, and the next
// one of that protocol the numbers.
func counter(text, protocol, name string) int {
	at := -1
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] != protocol:
		case at < 0:
			at = slices.Index(f, name)
		case at < len(f):
			n, _ := strconv.Atoi(f[at]) // it is a number
			return n
		}
	}
	return 0
}

// keep writes down what the programs of a failed cell have said.
func keep(t *testing.T, log string) string {
	dir := os.Getenv(outEnv)
	if dir == "" {
		dir = "../failures"
	}
	file := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "_")+".txt")
	file, err := filepath.Abs(file)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(log), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
	return file
}
