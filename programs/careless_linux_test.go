package programs

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// lingering returns a socket that waits for an hour when it is closed for the
// last time: nobody takes what was written to it.
func lingering(t *testing.T) int {
	t.Helper()
	little := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}}
	l, err := little.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("it takes TCP on 127.0.0.1 (ip link set lo up): %v", err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Cleanup(func() {
		peer.(*net.TCPConn).SetLinger(0)
		peer.Close() // resets it
	})
	if err := c.(*net.TCPConn).SetLinger(3600); err != nil {
		t.Fatal(err)
	}
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<16); err == nil; {
		_, err = unix.Write(fd, b)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	return fd
}

// answers fails unless the host answers before long.
func answers(t *testing.T, h *Host) *client {
	t.Helper()
	c := dial(t, h)
	c.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if ret, _, err := c.raw(question(opHello, Version, "uverbs0\x00")); ret != 0 || err != nil {
		t.Fatalf("hello: %d, %v", ret, err)
	}
	return c
}

// A file that waits when it is closed holds up nobody but who has sent it, also
// where nobody has received it.
func TestFilesThatWait(t *testing.T) { // not beside tests that fork, whose children would close the files last
	h := fakeHost(t, Config{MaxConnections: 2}, nil)
	send := func(c *client) {
		t.Helper()
		fd := lingering(t)
		if _, _, err := c.conn.WriteMsgUnix(question(opBye, 0, ""), unix.UnixRights(fd), nil); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	first, second := answers(t, h), answers(t, h)
	h.mu.Lock() // so that it comes before the refusal
	for range 3 {
		send(dial(t, h))
	}
	h.mu.Unlock()
	waiting := func() int {
		h.refused.mu.Lock()
		defer h.refused.mu.Unlock()
		return len(h.refused.busy) + len(h.refused.waiting[uint32(os.Geteuid())])
	}
	eventually(t, func() bool { return waiting() == 3 }) // one is being closed
	second.conn.Close()
	eventually(t, func() bool { return h.connected() == 1 })
	third := answers(t, h)
	h.mu.Lock() // it closes the file after this test
	send(third)
	h.mu.Unlock()
	third.conn.Close() // its session is held up
	if ret, _ := first.ask(opCommand, 0, "0123456789abcdef"); ret != -int32(unix.EOPNOTSUPP) {
		t.Errorf("another program: %d", ret)
	}
	if n := waiting(); n != 3 {
		t.Errorf("%d wait", n)
	}
}

// eventually waits for something that takes a moment.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

// connected returns how many sessions there are.
func (h *Host) connected() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// The poller of this process does not look at files of others: a file system in
// userspace has it wait, and all with it.
func TestFilesAreNotPolled(t *testing.T) {
	t.Parallel()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	oob := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(pair[1], make([]byte, 1), oob, 0)
	if err != nil {
		t.Fatal(err)
	}
	files := takeFiles(oob[:n])
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	defer files[0].Close()
	polls, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range polls {
		text, _ := os.ReadFile(name)
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" && f[1] == fmt.Sprint(files[0].Fd()) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if _, err := files[0].inode(); err == nil {
		t.Error("it is asked what it is")
	}
}

// Those who may not use devices keep no place of those who may.
func TestStrangersTakeNoPlace(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{Allow: func(uint32) bool { return false }}, nil)
	for range 2 * maxStrangers {
		c := dial(t, h)
		c.raw(question(opHello, Version, "uverbs0\x00"))
		if _, err := c.conn.Read(make([]byte, 1)); err == nil {
			t.Error("the session goes on")
		}
	}
	var idle []*client
	for range 2 * maxStrangers {
		idle = append(idle, dial(t, h))
	}
	for _, c := range idle[maxStrangers:] {
		if _, err := c.conn.Read(make([]byte, 1)); err == nil {
			t.Error("too many wait")
		}
	}
}

// What a user has he has in all of his processes, and gives it back when the
// last one ends.
func TestAccountsOfUsers(t *testing.T) {
	t.Parallel()
	h := fakeHost(t, Config{User: quota.Limits{quota.QPs: 3}}, nil)
	c := answers(t, h)
	own := uint32(os.Geteuid())
	a := h.account(own)
	if h.account(own) != a || h.account(own+1) == a {
		t.Error("accounts are not those of users")
	}
	if a.Take(quota.QPs, 4) == nil || a.Take(quota.CQs, 1<<30) != nil {
		t.Error("the user of the daemon has other limits than the configuration says")
	}
	if b := h.account(own + 1); b.Take(quota.QPs, 4) == nil || b.Take(quota.CQs, 1<<30) == nil {
		t.Error("another user has no limits")
	}
	c.conn.Close()
	h.Wait(t.Context(), 0, time.Millisecond)
	if b := h.account(own); b != a {
		t.Error("an account is forgotten in which something is left")
	}
	if strangerLimits()[quota.Mappings]*4 > maxMappings() {
		t.Error("one user may have all mappings")
	}
}

// crowd is a device file that notes how many commands are carried out at once.
type crowd struct {
	*fakeFile
	now, most *atomic.Int32
}

func (f crowd) Open(Peer) (File, error) { return f, nil }

func (f crowd) Close() error { return nil }

func (f crowd) Command(Peer, []byte) abi.Reply {
	n := f.now.Add(1)
	for range 100 {
		runtime.Gosched()
	}
	for old := f.most.Load(); n > old && !f.most.CompareAndSwap(old, n); old = f.most.Load() {
	}
	f.now.Add(-1)
	return abi.Reply{}
}

// Commands of one user are not all carried out at once.
func TestTurnsOfUsers(t *testing.T) {
	t.Parallel()
	memory, bell, err := fakeMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll([]*os.File{memory, bell}) })
	h := fakeHost(t, Config{}, nil)
	own := uint32(os.Geteuid())
	h.mu.Lock()
	if h.turnsOf(own) != nil || cap(h.turnsOf(own+1)) == 0 || cap(h.turnsOf(own+1)) > max(1, runtime.GOMAXPROCS(0)/2) {
		t.Error("the bounds are wrong")
	}
	h.turns[own] = make(turns, 2) // as that of another user
	h.mu.Unlock()
	f := crowd{&fakeFile{visible: memory, bell: bell}, new(atomic.Int32), new(atomic.Int32)}
	if err := h.AddVerbs(Attributes{Name: "rxe_lo1", Index: 1}, f); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		c := dial(t, h)
		if ret, _ := c.ask(opHello, Version, "uverbs1\x00"); ret != 0 {
			t.Fatalf("hello: %d", ret)
		}
		wg.Go(func() {
			for range 20 {
				if ret, _ := talk(c.conn, opCommand, 0, nil); ret != 0 {
					t.Errorf("command: %d", ret)
				}
			}
		})
	}
	wg.Wait()
	if n := f.most.Load(); n != 2 {
		t.Errorf("%d commands at once; want 2", n)
	}
}

// Programs do not fill the log.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	var lines atomic.Int32
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) { lines.Add(1) }), nil))
	h := fakeHost(t, Config{Log: log}, nil)
	for range 300 {
		dial(t, h).raw([]byte{1, 2, 3})
	}
	if n := lines.Load(); n < 50 || n > 200 {
		t.Errorf("%d lines", n)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }
