package foreign

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// A copier is a thread of the process that copies its memory, where the rules
// of ptrace keep this process from it. It answers on a socket of whole messages
// (SOCK_SEQPACKET), one question at a time:
//
//	question: u32 what, u32 length, u64 address, u64 number; what is written
//	answer:   s32 0 or a negative error number, u32 0, u64 number; what is read
//
// A process that is stopped (SIGSTOP) does not answer. It is waited for once;
// until the answer is there its memory is a fault at once. Whoever has others
// wait in that way time and again does penance (owner).
type copier struct {
	mu     sync.Mutex
	fd     int
	number uint64
	owes   bool // an answer
	head   [questionSize]byte
	reply  [answerSize]byte
	oob    [controlSize]byte

	gone atomic.Bool
}

const (
	copierRead    = 1
	copierWrite   = 2
	copierCheck   = 3 // whether memory is there, to be read
	copierCheckRW = 4 // and written

	questionSize = 24
	answerSize   = 16

	// controlSize has room for as many files as a message may have (253),
	// and all else that comes with it: files without room are closed at
	// once.
	controlSize = 8 << 10

	lookAfter   = 50 * time.Millisecond
	settleAfter = 2 * time.Millisecond
)

// WithCopier opens the address space of a process by its copier's socket. It is
// OpenProcess where that returns os.ErrPermission. A process that has no number
// here has one below 0, and perhaps a pidfd (else -1).
func WithCopier(pid int, uid uint32, account *quota.Account, socket interface{ Fd() uintptr }, pidfd int) (*Space, error) {
	if d := ownerOf(uid).left(); d > 0 {
		return nil, fmt.Errorf("memory of process %d: %w: copies of memory of user %d took too long; try again in %v", pid, os.ErrPermission, uid, d)
	}
	typ, err := unix.GetsockoptInt(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
	domain, _ := unix.GetsockoptInt(int(socket.Fd()), unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || typ != unix.SOCK_SEQPACKET || domain != unix.AF_UNIX { // others may have it wait
		return nil, fmt.Errorf("memory of process %d: %w: that is no socket of a copier", pid, unix.EINVAL)
	}
	s := &Space{pid: pid, uid: uid, pidfd: -1, mem: -1, maps: -1, users: 1, owner: ownerOf(uid), account: account, couriers: couriers{carry: carry}}
	switch {
	case pid > 0:
		s.pidfd, err = unix.PidfdOpen(pid, 0)
	case pidfd >= 0:
		s.pidfd, err = unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 3)
	}
	if err != nil {
		return nil, fmt.Errorf("memory of process %d: %w", pid, gone(err))
	}
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		s.closeFiles()
		return nil, err
	}
	s.copier = &copier{fd: fd}
	spaces.Lock()
	defer spaces.Unlock()
	spaces.open[pid] = s
	return s, nil
}

// alive reports whether the process has the other end of the socket.
func (c *copier) alive() bool {
	if c.gone.Load() {
		return false
	}
	events, err := c.poll(0, 0)
	return err == nil && events&(unix.POLLHUP|unix.POLLERR) == 0
}

func (c *copier) poll(events int16, wait time.Duration) (int16, error) {
	p := [1]unix.PollFd{{Fd: int32(c.fd), Events: events}}
	for began := time.Now(); ; {
		_, err := unix.Poll(p[:], int(max(wait-time.Since(began), 0).Milliseconds()))
		if err != unix.EINTR {
			return p[0].Revents, err
		}
	}
}

// ask has the copier do something. What is written follows the question; what
// is read comes with the answer.
func (s *Space) ask(what uint32, addr uint64, n int, write [][]byte, read []byte) error {
	c := s.copier
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.refuses() || c.gone.Load() || c.owes && !s.settle() {
		return ib.FaultMemory
	}
	c.number++
	binary.NativeEndian.PutUint32(c.head[:], what)
	binary.NativeEndian.PutUint32(c.head[4:], uint32(n))
	binary.NativeEndian.PutUint64(c.head[8:], addr)
	binary.NativeEndian.PutUint64(c.head[16:], c.number)
	if _, err := unix.SendmsgBuffers(c.fd, append([][]byte{c.head[:]}, write...), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
		c.gone.Store(!errors.Is(err, unix.EAGAIN))
		return ib.FaultMemory
	}
	c.owes = true
	if !s.await() {
		return ib.FaultMemory
	}
	return s.answer(read)
}

// wait waits for an answer.
func (c *copier) wait(d time.Duration) bool {
	events, err := c.poll(unix.POLLIN, d)
	if err != nil || events&unix.POLLIN == 0 && events != 0 {
		c.gone.Store(true)
	}
	return events&unix.POLLIN != 0
}

// own reports whether a user is that of this process, which he could stop
// anyway.
func own(uid uint32) bool { return uid == uint32(os.Geteuid()) }

// await waits for an answer, and notes for how long. From time to time it looks
// whether the process is stopped.
func (s *Space) await() bool {
	most := lateness
	if !own(s.uid) { // his copies get no more time than couriers do
		most = patience
	}
	waited, there := inLooks(most, time.Now, func(d, waited time.Duration) (there, over bool) {
		if s.copier.wait(d) {
			return true, true
		}
		return false, s.copier.gone.Load() || s.stopped() && (s.pid > 0 || waited > patience)
	})
	if !own(s.uid) {
		s.owner.answered(waited, most)
	}
	return there
}

// inLooks looks again and again, each time for a while, until it has looked for
// so long. It returns for how long. Where this process itself has no processor,
// on a machine with much to do, a look takes longer than it should: that counts
// for no more, and a process that is waited for gets all looks.
func inLooks(most time.Duration, now func() time.Time, look func(d, waited time.Duration) (there, over bool)) (waited time.Duration, there bool) {
	for over := false; waited < most && !over; {
		d := min(lookAfter, most-waited)
		began := now()
		there, over = look(d, waited+d)
		waited += min(now().Sub(began), d)
	}
	return waited, there
}

// settle takes an answer that is late. Of a process that is still stopped there
// is none.
func (s *Space) settle() bool {
	c := s.copier
	at := time.Duration(0)
	if s.pid < 0 {
		at = settleAfter // it may just go on
	}
	began := time.Now()
	there := c.wait(at)
	if !there && at > 0 && !own(s.uid) {
		s.owner.silent(time.Since(began))
	}
	if !there && (s.stopped() || !s.await()) {
		return false
	}
	_ = s.answer(nil)
	return !c.owes
}

// stopped reports whether the process is stopped (proc(5): the letter behind
// its name, which is in brackets). One that cannot be seen is taken to be.
func (s *Space) stopped() bool {
	if s.pid < 0 {
		return true
	}
	text, err := os.ReadFile(s.path("stat"))
	i := bytes.LastIndexByte(text, ')') + 2
	return err == nil && i < len(text) && (text[i] == 'T' || text[i] == 't')
}

// answer takes the answer that is there.
func (s *Space) answer(read []byte) error {
	c := s.copier
	n, control, _, _, err := unix.RecvmsgBuffers(c.fd, [][]byte{c.reply[:], read}, c.oob[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if control > 0 {
		s.bury(c.oob[:control])
	}
	if err != nil || n < answerSize || binary.NativeEndian.Uint64(c.reply[8:]) != c.number {
		c.gone.Store(true) // it does not speak the protocol
		return ib.FaultMemory
	}
	c.owes = false
	if binary.NativeEndian.Uint32(c.reply[:]) != 0 || n != answerSize+len(read) {
		return ib.FaultMemory
	}
	return nil
}

// bury closes files that came with an answer, and takes it for none. To close
// one may take as long as the process likes (a socket that lingers), so it is
// done elsewhere, and the user pays as for a courier.
func (s *Space) bury(control []byte) {
	s.copier.gone.Store(true)
	messages, _ := unix.ParseSocketControlMessage(control)
	var fds []int
	for _, m := range messages {
		some, _ := unix.ParseUnixRights(&m)
		fds = append(fds, some...)
	}
	if len(fds) == 0 {
		return
	}
	s.owner.lost()
	go func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
		s.owner.found()
	}()
}

// settled waits for what the copier still does. Memory that is no region any
// more must not be written later.
func (s *Space) settled() {
	s.copier.mu.Lock()
	defer s.copier.mu.Unlock()
	if s.copier.owes {
		s.settle()
	}
}

// readByCopier is read.
func (s *Space) readByCopier(dst []byte, addr uint64) error {
	for len(dst) > 0 {
		n := min(len(dst), courierBytes)
		if err := s.ask(copierRead, addr, n, nil, dst[:n]); err != nil {
			return err
		}
		dst, addr = dst[n:], addr+uint64(n)
	}
	return nil
}

// writeByCopier is write, of buffers one behind the other.
func (s *Space) writeByCopier(addr uint64, bufs ...[]byte) error {
	var run [][]byte
	n := 0
	flush := func() error {
		err := s.ask(copierWrite, addr, n, run, nil)
		addr, n, run = addr+uint64(n), 0, run[:0]
		return err
	}
	for _, b := range bufs {
		for len(b) > 0 {
			k := min(len(b), courierBytes-n)
			run, b, n = append(run, b[:k]), b[k:], n+k
			if n == courierBytes || len(run) == maxVector {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if n == 0 {
		return nil
	}
	return flush()
}

// checkByCopier is check. The process may lie: then copies fail.
func (s *Space) checkByCopier(addr, n uint64, write bool) error {
	what := uint32(copierCheck)
	if write {
		what = copierCheckRW
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], n)
	if s.ask(what, addr, len(b), [][]byte{b[:]}, nil) != nil {
		return fault(addr, "is not there, or has no such rights")
	}
	return nil
}
