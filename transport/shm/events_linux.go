//go:build !portable

package shm

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A bell is one end of a pair of datagram sockets, by which two links wake each
// other. A peer may do with its end, and with the flags of ours, what it likes:
// no call for a socket blocks that says MSG_DONTWAIT, as one for an eventfd
// does when its O_NONBLOCK is taken away. It is no os.File: the runtime's
// poller would wake for it.

// newBells makes both ends.
func newBells() (own, peer int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], os.NewSyscallError("socketpair", err)
}

// checkBell refuses what is no bell.
func checkBell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || err2 != nil || domain != unix.AF_UNIX || kind != unix.SOCK_DGRAM {
		return errBroken("what the peer is to be woken by is no datagram socket")
	}
	return nil
}

// ring wakes the peer. It fails when so many wake-ups are on their way that one
// more makes no difference, or when the peer has ended.
func ring(bell int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(bell), uintptr(unsafe.Pointer(&anything)), 1, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
}

// anything is what is sent: a datagram of no bytes is as good, but looks like
// the end of a connection in a trace.
var anything [1]byte

// events are the bells by which peers wake a link.
type events struct {
	f    *os.File
	shut func(bell int) // is called for one that is always ready, as nothing comes any more

	// While one is read, none is removed: its number may become that of
	// another file.
	mu sync.Mutex
}

func newEvents(shut func(bell int)) (*events, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &events{f: os.NewFile(uintptr(fd), "epoll"), shut: shut}, nil
}

func (e *events) add(bell int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(bell)}
	return e.control(unix.EPOLL_CTL_ADD, bell, &ev)
}

// remove must be called before a bell is closed: the peer may have it, too.
func (e *events) remove(bell int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.control(unix.EPOLL_CTL_DEL, bell, nil)
}

func (e *events) control(op, fd int, ev *unix.EpollEvent) error {
	raw, err := e.f.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(ep uintptr) { err = unix.EpollCtl(int(ep), op, fd, ev) }); e != nil {
		return e
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// drain takes a wake-up from each bell that has one. What is left wakes again.
// One that a peer has shut down, which may have both ends, would do so for
// ever.
func (e *events) drain() {
	raw, err := e.f.SyscallConn()
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var list [16]unix.EpollEvent
	_ = raw.Control(func(ep uintptr) {
		n, _ := unix.EpollWait(int(ep), list[:], 0)
		for i := range max(n, 0) {
			if list[i].Events&(unix.EPOLLRDHUP|unix.EPOLLHUP) != 0 {
				e.shut(int(list[i].Fd))
			}
			// No room for a byte: it is cut off.
			_, _, _ = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(list[i].Fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
		}
	})
}
