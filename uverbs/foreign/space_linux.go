package foreign

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// Space is the address space of a process. Its methods may be called from any
// goroutine.
type Space struct {
	pid   int
	uid   uint32
	pidfd int // -1 where the kernel has none

	trusted bool // the process is of the user that this one is of
	direct  bool // process_vm_readv serves
	owner   *owner
	couriers
	copier *copier // or nil: a thread of the process copies

	account *quota.Account // of what is mapped

	mem  int // /proc/PID/mem
	maps int // /proc/PID/maps

	atomics sync.Mutex // words that are not mapped
	reading sync.Mutex // maps

	mu     sync.Mutex
	users  int // of OpenProcess, and regions
	mapped ranges
	bytes  uint64 // of all mapped
}

// spaces are those that are open: an address space has one, so that atomics are
// atomic towards each other, however often the process connects.
var spaces = struct {
	sync.Mutex
	open map[int]*Space
}{open: map[int]*Space{}}

// OpenProcess opens the address space of a process that runs as user uid, as
// the socket that it has connected by says. Close gives it back. What the
// process has mapped here counts towards an account, which may be nil.
//
// The error says what the process or the system must allow: os.ErrPermission is
// of a process that may not be traced (ptrace(2), Yama), os.ErrProcessDone of
// one that is gone, or has become another program in the meantime.
func OpenProcess(pid int, uid uint32, account *quota.Account) (*Space, error) {
	if d := ownerOf(uid).left(); d > 0 {
		return nil, fmt.Errorf("memory of process %d: %w: a copy of memory of user %d took too long; try again in %v", pid, os.ErrPermission, uid, d)
	}
	old := lookUp(pid, uid)
	if old != nil && !old.Stuck() && old.Alive() {
		return old, nil
	}
	s, err := open(pid, uid) // without the lock: it may have to wait for the process
	if old != nil {
		old.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	spaces.Lock()
	if other := spaces.open[pid]; other != nil && other != old && other.uid == uid && other.acquire() {
		spaces.Unlock()
		s.Close()
		return other, nil
	}
	defer spaces.Unlock()
	s.account = account
	spaces.open[pid] = s
	return s, nil
}

// lookUp returns the open space of a process, and counts a user.
func lookUp(pid int, uid uint32) *Space {
	spaces.Lock()
	defer spaces.Unlock()
	s := spaces.open[pid]
	if s == nil || s.uid != uid || !s.acquire() {
		return nil
	}
	return s
}

// open opens the files of a space, and looks whose they are when all are open:
// a program that the process has become before that, with other rights, is not
// the user's.
func open(pid int, uid uint32) (*Space, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("%w: its number is not known here: it is in another PID namespace", os.ErrPermission)
	}
	s := &Space{pid: pid, uid: uid, pidfd: -1, mem: -1, maps: -1, users: 1, owner: ownerOf(uid), couriers: couriers{carry: carry}}
	fail := func(err error) (*Space, error) {
		s.closeFiles()
		return nil, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case err == nil:
		s.pidfd = fd
	case !errors.Is(err, unix.ENOSYS):
		return fail(gone(err))
	}
	if s.mem, err = unix.Open(s.path("mem"), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fail(denied(err))
	}
	if s.maps, err = unix.Open(s.path("maps"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fail(denied(err))
	}
	var st unix.Stat_t
	if err := unix.Stat(s.path("mem"), &st); err != nil {
		return fail(gone(err))
	}
	if !s.Alive() {
		return fail(os.ErrProcessDone)
	}
	if st.Uid != uid {
		return fail(fmt.Errorf("%w: it belongs to user %d now, and not to user %d", os.ErrPermission, st.Uid, uid))
	}
	s.trusted = uid == uint32(os.Geteuid())
	s.direct = s.trusted && s.pidfd >= 0
	return s, nil
}

func (s *Space) path(name string) string { return fmt.Sprintf("/proc/%d/%s", s.pid, name) }

// gone says why a process is not there.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return os.ErrProcessDone
	}
	return err
}

// denied says what to do about a process that may not be traced.
func denied(err error) error {
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: the process must allow it by prctl(PR_SET_PTRACER) where kernel.yama.ptrace_scope is 1, run as the same user, and be dumpable", err)
	}
	return gone(err)
}

// PID returns the number of the process.
func (s *Space) PID() int { return s.pid }

// Alive reports whether the process still has this address space.
func (s *Space) Alive() bool {
	if !s.running() {
		return false
	}
	if s.copier != nil {
		return s.copier.alive()
	}
	// Nothing is mapped at 0: that is EIO, and of no address space 0 bytes.
	var b [1]byte
	n, err := unix.Pread(s.mem, b[:], 0)
	return n != 0 || err != nil
}

// running reports whether the process with the number is still the same.
func (s *Space) running() bool {
	if s.pidfd < 0 {
		return true
	}
	p := [1]unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p[:], 0)
		if err != unix.EINTR {
			return err == nil && n == 0
		}
	}
}

// acquire counts a user, unless there are none any more: then the files are
// closed, and their numbers may be those of others.
func (s *Space) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return false
	}
	s.users++
	return true
}

// errClosed is of a space that is used beside or after its end.
var errClosed = fmt.Errorf("%w: its memory has been given up", unix.EFAULT)

// Close gives the space back. Regions of it stay until they are closed.
func (s *Space) Close() error {
	if !s.release() {
		return nil
	}
	for _, c := range s.idle {
		close(c.jobs)
	}
	s.Unmap(0, math.MaxUint64) // no region uses it any more
	s.closeFiles()
	return nil
}

// release drops a user, and reports whether it was the last one.
func (s *Space) release() (last bool) {
	spaces.Lock()
	defer spaces.Unlock()
	s.mu.Lock()
	s.users--
	last = s.users == 0
	s.mu.Unlock()
	if last && spaces.open[s.pid] == s {
		delete(spaces.open, s.pid)
	}
	return last
}

func (s *Space) closeFiles() {
	if s.copier != nil {
		unix.Close(s.copier.fd)
	}
	for _, fd := range []int{s.pidfd, s.mem, s.maps} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
