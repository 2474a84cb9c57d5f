//go:build !portable

package owner_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/sockfilter"
	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/verbs"
)

// The number of a user without rights.
const nobody = 65534

// leaver asks for a lease, and leaves the connection to a child.
func leaver(socket string) error {
	c, err := lease.Dial(socket)
	if err != nil {
		return err
	}
	hello := lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1}}
	if _, err := c.Write(hello.Append(nil)); err != nil {
		return err
	}
	b := make([]byte, lease.MaxMessage)
	if n, err := c.Read(b); err != nil || !strings.Contains(string(b[:n]), "grant") {
		return fmt.Errorf("%s, %w", b[:n], err)
	}
	f, err := c.File()
	if err != nil {
		return err
	}
	child := exec.Command("cat") // which ends with the standard input of both
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{f}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("left to", child.Process.Pid)
	return child.Wait()
}

// A lease ends with its process, also while a child has the connection.
func TestChildThatKeepsTheConnection(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	p := begin(t, "leaver", o.Socket())
	if o.Stats().Leases != 1 {
		t.Errorf("%+v", o.Stats())
	}
	p.cmd.Process.Kill()
	for o.Stats().Leases > 0 {
		o.Leases() // the owner learns of it
	}
	var child int
	if _, err := fmt.Sscanf(p.addr, "left to %d", &child); err != nil || syscall.Kill(child, 0) != nil {
		t.Errorf("the child %d is not there: the test shows nothing", child)
	}
	p.in.Close()
}

// Another user has a lease where the configuration says so, and else not.
func TestOtherUser(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only the superuser can be two users: run the tests as root")
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, allowed := range []bool{false, true} {
		o, err := owner.Listen(owner.Config{Addr: netip.MustParseAddr("127.0.0.1"), Dir: filepath.Join(dir, "port"),
			Allow: func(uid uint32) bool { return allowed && uid == nobody }})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "port"), 0o755); err != nil {
			t.Fatal(err)
		}
		here := begin(t, "program", "127.0.0.1")
		other := start(t, "nobody", "127.0.0.1", "ROCEV2_PROGRAMS="+dir)
		if allowed {
			ring([]*process{here, other}, 20)
			list := o.Leases()
			if len(list) != 2 || list[0].UID+list[1].UID != nobody {
				t.Errorf("%+v", list)
			}
		} else if !strings.Contains(other.addr, "user 65534 may not lease") {
			t.Errorf("user %d is told %q", nobody, other.addr)
		}
		here.kill()
		other.kill()
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An owner that is stopped lets no process wait for ever, and those that have
// their lease go on.
func TestStoppedOwner(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for an owner that does not answer: run without -short")
	}
	if !testnet.Isolated(t) {
		return
	}
	const addr = "127.0.0.1"
	first := begin(t, "owner", addr)
	p, q := begin(t, "program", addr), begin(t, "program", addr)
	ring([]*process{p, q}, 5)
	first.stop()
	_, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", first.cmd.Process.Pid)) || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("error %v, and the owner is stopped", err)
	}
	ring([]*process{p, q}, 5)
	first.signal(syscall.SIGCONT)
	ring([]*process{p, q, begin(t, "program", addr)}, 5)
}

// What is under way when a peer is killed, and when the owner is, ends with an
// error.
func TestKillInMidTraffic(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for _, addr := range []string{"127.0.0.1", "::1"} {
		first := begin(t, "owner", addr)
		a, b, c := begin(t, "program", addr), begin(t, "program", addr), begin(t, "program", addr)
		endless := func(p, peer *process) {
			p.say("talk %s 5", peer.addr)
			p.done()
			p.say("talk %s %d", peer.addr, 1<<30)
		}
		fails := func(p *process) {
			t.Helper()
			if s := p.line(); !strings.HasPrefix(s, "error: ") || strings.Contains(s, "other bytes") {
				t.Errorf("process %d says %q", p.cmd.Process.Pid, s)
			}
		}
		endless(a, b)
		endless(c, a)
		b.kill()
		fails(a)
		first.kill()
		fails(c)
		for _, p := range []*process{a, c} { // which live
			p.say("fail")
			p.done()
			p.kill()
		}
	}
}

// Of those that race for an address one becomes its owner.
func TestRaceForAddress(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for range 5 {
		const many = 8
		begin, got := make(chan struct{}), make(chan *owner.Owner, many)
		for range many {
			go func() {
				<-begin
				o, err := owner.Listen(owner.Config{Addr: netip.MustParseAddr("127.0.0.1"), Slots: 8})
				if err != nil && !errors.Is(err, unix.EADDRINUSE) {
					t.Error(err)
				}
				got <- o
			}()
		}
		close(begin)
		var all []*owner.Owner
		for range many {
			if o := <-got; o != nil {
				all = append(all, o)
			}
		}
		if len(all) != 1 {
			t.Errorf("%d owners", len(all))
			return
		}
		a, b := openOn(t, "127.0.0.1", verbs.Config{}), openOn(t, "127.0.0.1", verbs.Config{})
		between(t, a, b, 2)
		// A device has the port until it has heard that the owner ends.
		if err := errors.Join(a.Close(), b.Close(), all[0].Close()); err != nil {
			t.Error(err)
		}
	}
}

// Without its directory the owner goes on, and one that asks where it is not
// learns which process has the port.
func TestDirectoryRemoved(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "port")
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("TMPDIR", t.TempDir())
	o := own(t, owner.Config{Dir: dir})
	a, b := openOn(t, "127.0.0.1", verbs.Config{}), openOn(t, "127.0.0.1", verbs.Config{})
	if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(os.Getenv("TMPDIR"))); err != nil {
		t.Fatal(err)
	}
	between(t, a, b, 3)
	if _, err := lease.OpenAt(o.Socket(), lease.Config{}); !errors.Is(err, lease.ErrNoOwner) {
		t.Errorf("error %v", err)
	}
	_, err := verbs.OpenAddr(netip.MustParseAddr("127.0.0.1"), verbs.Config{})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d)", os.Getpid())) {
		t.Errorf("error %v; process %d has the port", err, os.Getpid())
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// A process that may have no more files is told so, and has none of the lease.
func TestNoMoreFiles(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	p := start(t, "poor", o.Socket())
	if !strings.Contains(p.addr, "too many open files") || !strings.Contains(p.addr, "ulimit -n") {
		t.Errorf("it is told %q", p.addr)
	}
	for o.Stats().Leases > 0 {
		o.Leases() // the owner learns of it
	}
}

// poor asks for more sockets than it may have files.
func poor(socket string) error {
	c, err := lease.Dial(socket) // the runtime has its own files now
	if err != nil {
		return err
	}
	c.Close()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	few := uint64(len(list)) + 3
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: few}); err != nil {
		return err
	}
	_, err = lease.OpenAt(socket, lease.Config{Shards: 64})
	return err
}

// Envelopes with another token do nothing, whatever their source and
// destination.
func TestForgedEnvelopes(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{})
	a, b := openOn(t, "127.0.0.1", verbs.Config{}), openOn(t, "127.0.0.1", verbs.Config{})
	l, err := lease.OpenAt(o.Socket(), lease.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Links()[0].Close()
	e, err := newEnd(b)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	inner := make([]byte, 64)
	binary.BigEndian.PutUint32(inner[4:], uint32(e.qp.Endpoint().QPN))
	sendForged(t, l.Links()[0], o, lease.Token{1}, inner, 1000)
	if s := o.Stats(); s.Strays != 0 || s.Relayed != 0 || s.Answered != 0 {
		t.Errorf("%+v", s)
	}
	between(t, a, b, 3)
}

// A slot whose socket a leaseholder has spoilt for good is not given again, and
// the next process has another one.
func TestSpoiltSlot(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits until slots have rested: run without -short")
	}
	if !testnet.Isolated(t) {
		return
	}
	o := own(t, owner.Config{Slots: 8})
	c := knock(t, o)
	hello := lease.Message{Hello: &lease.Hello{Version: lease.Version, Shards: 1}}
	if _, err := c.Write(hello.Append(nil)); err != nil {
		t.Fatal(err)
	}
	b, control := make([]byte, lease.MaxMessage), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(b, control)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sockfilter.Attach(fds[0], bpf.RetConstant{Val: 1 << 16}),
		unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1), unix.Close(fds[0])); err != nil {
		t.Fatal(err)
	}
	var others []transport.Link
	for range 6 {
		others = append(others, openLease(t, o, lease.Config{}))
	}
	c.Close()
	for o.Stats().Free == 0 {
		runtime.Gosched() // the spoilt one rests
	}
	others[3].Close()
	for o.Stats().Free == 1 {
		runtime.Gosched()
	}
	if _, err := lease.OpenAt(o.Socket(), lease.Config{}); err != nil {
		t.Error(err)
	}
	if s := o.Stats(); s.Leases != 6 || s.Free != 0 || s.Resting != 0 {
		t.Errorf("%+v", s)
	}
}
