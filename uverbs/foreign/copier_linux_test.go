package foreign

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"golang.org/x/sys/unix"
)

// copied is a process with a copier whose end of the socket the test has.
func copied(t *testing.T) (*Space, int, *child) {
	t.Helper()
	c := start(t, 1)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	c.must(err)
	theirs := os.NewFile(uintptr(pair[1]), "copier")
	defer theirs.Close()
	s, err := WithCopier(c.cmd.Process.Pid, uint32(os.Getuid()), nil, theirs, -1)
	c.must(err)
	s.owner = new(owner) // a user of its own
	t.Cleanup(func() {
		s.Close()
		unix.Close(pair[0])
	})
	return s, pair[0], c
}

// question reads one.
func question(t *testing.T, fd int) (number uint64) {
	t.Helper()
	b := make([]byte, 1<<17)
	n, err := unix.Read(fd, b)
	if err != nil || n < questionSize {
		t.Fatalf("%d bytes, %v", n, err)
	}
	return binary.NativeEndian.Uint64(b[16:])
}

func answer(t *testing.T, fd int, number uint64, with ...byte) {
	t.Helper()
	b := binary.NativeEndian.AppendUint64(make([]byte, 8), number)
	if _, err := unix.Write(fd, append(b, with...)); err != nil {
		t.Fatal(err)
	}
}

// TestCopierLate: a copier that does not answer is waited for once, and serves
// again when it has.
func TestCopierLate(t *testing.T) {
	t.Parallel()
	s, fd, c := copied(t)
	b := make([]byte, 3)
	c.must(c.cmd.Process.Signal(unix.SIGSTOP))
	for !s.stopped() {
		runtime.Gosched()
	}
	began := time.Now()
	for range 1000 {
		if err := s.read(b, 4096); err != ib.FaultMemory {
			t.Errorf("no answer: %v", err)
		}
	}
	if d := time.Since(began); d > 500*lookAfter {
		t.Errorf("it is waited for each time: %v", d)
	}
	c.must(c.cmd.Process.Signal(unix.SIGCONT))
	answer(t, fd, question(t, fd), 1, 2, 3)
	go func() { answer(t, fd, question(t, fd), 4, 5, 6) }()
	if err := s.read(b, 4096); err != nil || b[0] != 4 {
		t.Errorf("%v, %v", b, err)
	}
	s.uid++ // another one
	s.owner.late, s.owner.lateAsOf = lateness+time.Minute, time.Now()
	c.must(c.cmd.Process.Signal(unix.SIGSTOP))
	defer c.cmd.Process.Signal(unix.SIGCONT)
	if err := s.read(b, 4096); err != ib.FaultMemory {
		t.Errorf("no answer: %v", err)
	}
	if s.owner.left() <= 0 { // whoever does that for long is refused
		t.Error("it can go on like this")
	}
}

// TestCopierLies: what is no answer ends it, and no process has to suffer.
func TestCopierLies(t *testing.T) {
	t.Parallel()
	for name, lie := range map[string][]byte{
		"short": {1}, "another number": append(make([]byte, 8), 99, 0, 0, 0, 0, 0, 0, 0),
		"too little": append(make([]byte, 8), 1, 0, 0, 0, 0, 0, 0, 0, 7),
	} {
		s, fd, _ := copied(t)
		if _, err := unix.Write(fd, lie); err != nil {
			t.Fatal(err)
		}
		if err := s.read(make([]byte, 3), 4096); err != ib.FaultMemory {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, fd, _ := copied(t)
	unix.Shutdown(fd, unix.SHUT_RDWR)
	if err := s.write(4096, []byte{1}); err != ib.FaultMemory || s.Alive() {
		t.Errorf("gone: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := WithCopier(os.Getpid(), 0, nil, r, -1); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSOCK) {
		t.Errorf("a pipe: %v", err)
	}
}

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
	defer l.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		peer.(*net.TCPConn).SetLinger(0)
		peer.Close() // resets it
	})
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<16); err == nil; {
		_, err = unix.Write(fd, b)
	}
	return fd
}

// TestCopierNeverAnswers: a copier that cannot be seen to be stopped, and never
// answers, has others wait for a bounded time all in all: also where the first
// wait was a little too short for penance.
func TestCopierNeverAnswers(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*Space){
		"at first": func(*Space) {},
		"once more": func(s *Space) {
			s.copier.owes = true
			s.owner.late, s.owner.lateAsOf = patience-prompt, time.Now()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, _ := copied(t)
			s.pid, s.uid = -1, uint32(os.Geteuid())+1
			begin(s)
			refused := false
			for range 2000 {
				if err := s.read(make([]byte, 3), 4096); err != ib.FaultMemory {
					t.Fatalf("no answer: %v", err)
				}
				if refused = s.owner.left() > 0; refused {
					break
				}
			}
			if !refused {
				t.Error("it has others wait without end")
			}
		})
	}
}

// TestCopierSendsFiles: files that come with an answer are not closed by who
// has others wait, for that may take for ever.
func TestCopierSendsFiles(t *testing.T) { // not beside tests that fork, whose children would close the files last
	s, theirs, c := copied(t)
	c.must(unix.SetsockoptInt(s.copier.fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)) // as its maker may
	fd := lingering(t)
	many := make([]int, 253)
	for i := range many {
		many[i] = fd
	}
	b := binary.NativeEndian.AppendUint64(make([]byte, 8), 1) // before the question comes
	c.must(unix.Sendmsg(theirs, append(b, 1, 2, 3), unix.UnixRights(many...), nil, 0))
	unix.Close(fd)
	asked := make(chan error)
	go func() {
		_ = s.read(make([]byte, 3), 4096)
		asked <- s.read(make([]byte, 3), 4096)
	}()
	select {
	case err := <-asked:
		if err != ib.FaultMemory {
			t.Errorf("a copier that sends files: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it is waited for")
	}
	if s.owner.left() < penance {
		t.Error("the user does no penance")
	}
}

// TestCopierBusy: copies that wait for a processor, one behind the other, are
// no reason for penance; such that wait longer are.
func TestCopierBusy(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]bool{8 * time.Millisecond: false, 40 * time.Millisecond: true} {
		o := new(owner)
		for range 100 {
			o.lateAsOf = time.Now().Add(-d) // the copy before
			o.answered(d, patience)
		}
		if got := o.left() > 0; got != want {
			t.Errorf("copies of %v: penance %v", d, got)
		}
	}
}
