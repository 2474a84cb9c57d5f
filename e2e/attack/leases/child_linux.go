//go:build !portable

package leases

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/e2e/attack/victim"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/verbs"
)

// ChildEnv is set in a process that is a leaseholder to be stopped or killed:
// its main function calls Child.
const ChildEnv = "ROCEATTACK_LEASE"

// Child takes a lease, says where it listens, and echoes until its standard
// input ends.
func Child(ctx context.Context) error {
	dev, err := verbs.OpenAddr(owner, verbs.Config{})
	if err != nil {
		return err
	}
	defer dev.Close()
	lc := rdma.ListenConfig{Device: dev}
	l, err := lc.Listen(ctx, netip.AddrPortFrom(owner, 0).String())
	if err != nil {
		return err
	}
	defer l.Close()
	go serve(ctx, l)
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is such a process, and a connection to it.
type child struct {
	*victim.Process
	addr string
	conn *rdma.Conn
}

func (t *trial) child() *child {
	exe, err := os.Executable()
	t.check(err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), ChildEnv+"=1")
	out, err := cmd.StdoutPipe()
	t.check(err)
	p, err := victim.Start(cmd)
	t.check(err)
	c := &child{Process: p}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		c.addr = strings.TrimSpace(line)
		d := rdma.Dialer{Device: t.honest.dials}
		c.conn, err = d.Dial(t.ctx, c.addr)
	}
	if err != nil {
		p.Stop()
		t.check(fmt.Errorf("a leaseholder: %w", err))
	}
	return c
}

func (c *child) close() {
	c.conn.Close()
	c.Stop()
}

// kills kills leaseholders while others talk with them, one after the other.
// Their peers are told.
func (t *trial) kills() {
	for n := 0; t.more(n, t.Clients/100); n++ {
		c := t.child()
		err := round(t.ctx, c.conn, n)
		t.must(err == nil, "a leaseholder that lives: %v", err)
		c.Stop()
		t.must(t.happens(func() bool { return isClosed(c.conn.Done()) }), "the peer of a leaseholder that was killed is not told")
		c.conn.Close()
		t.result.Sent++
	}
}

// stops has leaseholders stopped while others dial them and talk with them, and
// lets them go on.
func (t *trial) stops() {
	for n := 0; t.more(n, t.Clients/100); n++ {
		c := t.child()
		t.check(c.Signal(syscall.SIGSTOP))
		t.check(c.Stopped())
		ctx, cancel := context.WithCancel(t.ctx)
		dialled := make(chan error, 1)
		go func() {
			d := rdma.Dialer{Device: t.honest.dials, WaitForServer: true}
			dialled <- visit(ctx, &d, c.addr)
		}()
		since := t.traffic.rounds.Load()
		t.checkAnswers()
		for k := 0; k < burst || t.traffic.rounds.Load() < since+int64(t.Rounds) && t.more(0, 1); k++ {
			t.forge(strange, t.mad())
			if k%burst == 0 {
				time.Sleep(rest)
			}
		}
		t.checkAnswers()
		t.check(c.Signal(syscall.SIGCONT))
		err := <-dialled
		t.must(err == nil, "a leaseholder that goes on: %v", err)
		cancel()
		c.close()
	}
}

// isClosed reports whether a channel is closed.
func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
