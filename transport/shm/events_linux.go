//go:build !portable

package shm

import (
	"os"

	"golang.org/x/sys/unix"
)

// events are the eventfds by which peers wake a link. They are not read: that
// one was written is told once, by an edge-triggered epoll.
type events struct{ f *os.File }

func newEvents() (events, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return events{}, os.NewSyscallError("epoll_create1", err)
	}
	return events{os.NewFile(uintptr(fd), "epoll")}, nil
}

func (e events) add(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(fd)}
	return e.control(unix.EPOLL_CTL_ADD, fd, &ev)
}

// remove must be called before fd is closed: the peer has it, too.
func (e events) remove(fd int) error { return e.control(unix.EPOLL_CTL_DEL, fd, nil) }

func (e events) control(op, fd int, ev *unix.EpollEvent) error {
	raw, err := e.f.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(ep uintptr) { err = unix.EpollCtl(int(ep), op, fd, ev) }); e != nil {
		return e
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// drain takes note of what was written.
func (e events) drain() {
	raw, err := e.f.SyscallConn()
	if err != nil {
		return
	}
	var list [16]unix.EpollEvent
	_ = raw.Control(func(ep uintptr) {
		_, _ = unix.EpollWait(int(ep), list[:], 0) // what is left wakes again
	})
}
