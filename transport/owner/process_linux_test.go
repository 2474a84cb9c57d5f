//go:build !portable

package owner_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// roleEnv has this test binary be another process, in a role that play knows.
// One of them is another user, and "abroad" has a network namespace of its own.
const roleEnv = "ROCEV2_TEST_OWNER_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role, os.Args[1]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// play is what another process does. It says its address, and does what the
// lines of its standard input say, until they end.
func play(role, addr string) error {
	switch role {
	case "leaver":
		return leaver(addr)
	case "poor":
		return poor(addr)
	case "nobody":
		if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
			return err
		}
	}
	dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{Owner: role == "owner"})
	if err != nil {
		return err
	}
	defer dev.Close()
	lc := rdma.ListenConfig{Device: dev}
	ln, err := lc.Listen(context.Background(), netip.AddrPortFrom(dev.Addr(), 0).String())
	if err != nil {
		return err
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			go echo(c)
		}
	}()
	fmt.Println(ln.Addr())
	conns := map[string]*rdma.Conn{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := obey(dev, conns, in.Text()); err != nil {
			fmt.Println("error:", err)
			continue
		}
		fmt.Println("done")
	}
	return nil
}

// echo sends back what comes.
func echo(c *rdma.Conn) {
	defer c.Close()
	b := make([]byte, messageLen)
	for {
		n, err := c.Recv(context.Background(), b)
		if err != nil || c.Send(context.Background(), b[:n]) != nil {
			return
		}
	}
}

// obey does what a line says: "talk ADDRESS N" sends N messages, and checks
// each byte of their echoes. "fail" waits until the device fails.
func obey(dev *verbs.Device, conns map[string]*rdma.Conn, line string) error {
	var peer string
	var n int
	if line == "fail" {
		e, err := dev.AsyncEvent(context.Background())
		if err == nil && e.Event != verbs.EventDeviceFatal {
			err = fmt.Errorf("event %v", e)
		}
		return err
	}
	if _, err := fmt.Sscanf(line, "talk %s %d", &peer, &n); err != nil {
		return err
	}
	c := conns[peer]
	if c == nil {
		var err error
		dc := rdma.Dialer{Device: dev}
		if c, err = dc.Dial(context.Background(), peer); err != nil {
			return err
		}
		conns[peer] = c
	}
	b, want := make([]byte, messageLen), make([]byte, 1000)
	for i := range n {
		fill(want, os.Getpid(), i)
		binary.BigEndian.PutUint32(want, uint32(i))
		if err := c.Send(context.Background(), want); err != nil {
			return err
		}
		got, err := c.Recv(context.Background(), b)
		if err != nil {
			return err
		}
		if string(b[:got]) != string(want) {
			return errors.New("the echo has other bytes")
		}
	}
	return nil
}

// process is another one.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	addr string // where it listens
}

// begin starts a process, and waits until it listens.
func begin(t *testing.T, role, addr string, env ...string) *process {
	t.Helper()
	p := start(t, role, addr, env...)
	if strings.HasPrefix(p.addr, "error") {
		t.Fatalf("%s on %s: %s", role, addr, p.addr)
	}
	return p
}

// start is begin of a process that may fail: then addr is the error.
func start(t *testing.T, role, addr string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], addr)}
	p.cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if role == "abroad" {
		p.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	p.addr = p.line()
	return p
}

func (p *process) line() string {
	s, err := p.out.ReadString('\n')
	if err != nil {
		return "error: " + err.Error()
	}
	return strings.TrimSpace(s)
}

func (p *process) say(format string, args ...any) {
	fmt.Fprintf(p.in, format+"\n", args...)
}

// done checks that the process has done what it was told.
func (p *process) done() {
	p.t.Helper()
	if s := p.line(); s != "done" {
		p.t.Errorf("process %d: %s", p.cmd.Process.Pid, s)
	}
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// stop stops the process, and waits until it is: a signal takes its time.
func (p *process) stop() {
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			p.t.Errorf("process %d has not stopped: %v", p.cmd.Process.Pid, err)
		}
		return
	}
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// mostTalkers is how many processes talk at once. Of very many on a few
// processors, under the race detector, one may wait for its turn for longer
// than a peer's retries last (0.5 s): then the connection ends, as it should.
const mostTalkers = 16

// ring has each process talk to the next one.
func ring(all []*process, n int) {
	for first := 0; first < len(all); first += mostTalkers {
		talkers := all[first:min(first+mostTalkers, len(all))]
		for i, p := range talkers {
			p.say("talk %s %d", all[(first+i+1)%len(all)].addr, n)
		}
		for _, p := range talkers {
			p.done()
		}
	}
}

// Ten processes on one address listen and dial, over IPv4 and IPv6. One is
// killed, and one is stopped, and the others go on. The owner is killed: all
// fail, and those of a new owner take their place.
func TestTenProcesses(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for _, addr := range []string{"127.0.0.1", "::1"} {
		first := begin(t, "owner", addr)
		all := []*process{first}
		for range 9 {
			all = append(all, begin(t, "program", addr))
		}
		ring(all, 20)
		all[4].kill()
		all[5].stop()
		rest := append(append([]*process(nil), all[:4]...), all[6:]...)
		ring(rest, 20)
		rest = append(rest, begin(t, "program", addr))
		ring(rest, 20)
		all[5].signal(syscall.SIGCONT)
		ring(append(rest, all[5]), 5)

		first.kill()
		for _, p := range rest[1:] {
			p.say("fail")
		}
		for _, p := range rest[1:] {
			p.done()
		}
		again := []*process{begin(t, "owner", addr), begin(t, "program", addr)}
		ring(again, 5)
		for _, p := range append(again, all[1:]...) {
			p.kill()
		}
		for _, p := range rest[1:] {
			p.kill()
		}
	}
}

// A leaseholder that is stopped when its owner ends keeps the port. A new owner
// says so.
func TestStoppedLeaseholderIsNamed(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	const addr = "127.0.0.1"
	first, p := begin(t, "owner", addr), begin(t, "program", addr)
	p.stop()
	first.kill()
	_, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{Owner: true})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", p.cmd.Process.Pid)) || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("error %v, and process %d is stopped", err, p.cmd.Process.Pid)
	}
	p.signal(syscall.SIGCONT)
	p.say("fail")
	p.done()
	begin(t, "owner", addr)
}

// Programs of another network namespace lease the port by the mounted
// directory.
func TestOtherNetworkNamespace(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	const addr = "127.0.0.1"
	dir := t.TempDir()
	o, err := owner.Listen(owner.Config{Addr: netip.MustParseAddr(addr), Dir: filepath.Join(dir, "port")})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	here := begin(t, "program", addr)
	abroad := begin(t, "abroad", addr, "ROCEV2_PROGRAMS="+dir)
	ring([]*process{here, abroad}, 20)
	if n := len(o.Leases()); n != 2 {
		t.Errorf("%d leases", n)
	}
}
