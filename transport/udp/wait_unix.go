//go:build (unix && !linux) || portable

package udp

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/transport"
)

// waiter is the state of Wait: poll(2) on the link's socket, on a pipe that
// wakes it, and on the sockets of groups.
type waiter struct {
	ends    [2]*os.File // of the pipe
	raws    [2]syscall.RawConn
	own     *ipSocket
	members []*member // of this call
	fds     []unix.PollFd

	onPipe, onSocket, write func(fd uintptr)
}

func (w *waiter) init(own *ipSocket) error {
	var p [2]int
	syscall.ForkLock.RLock()
	err := unix.Pipe(p[:])
	if err == nil {
		unix.CloseOnExec(p[0])
		unix.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return os.NewSyscallError("pipe", err)
	}
	for i, fd := range p {
		w.ends[i] = os.NewFile(uintptr(fd), "wake")
	}
	for i, fd := range p {
		if err := unix.SetNonblock(fd, true); err != nil { // only now: the runtime's poller leaves it alone
			w.close()
			return os.NewSyscallError("fcntl", err)
		}
		if w.raws[i], err = w.ends[i].SyscallConn(); err != nil {
			w.close()
			return err
		}
	}
	w.own = own
	var one [1]byte
	w.onPipe = w.withPipe
	w.onSocket = w.withSocket
	w.write = func(fd uintptr) {
		// It fails only when the pipe is full: then a wake-up is
		// pending.
		_, _ = unix.Write(int(fd), one[:])
	}
	return nil
}

// add has Wait watch a socket. It finds those of groups itself.
func (w *waiter) add(*ipSocket) error { return nil }

// wait waits until a socket is readable or wake is called.
func (w *waiter) wait(l *Link) error {
	w.members = l.groups.members()
	err := w.raws[0].Control(w.onPipe)
	w.members = nil
	if err != nil {
		return transport.ErrClosed
	}
	return nil
}

func (w *waiter) withPipe(fd uintptr) {
	w.fds = append(w.fds[:0], unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	// An error means closed, which Wait looks for.
	_ = w.own.raw.Control(w.onSocket)
}

func (w *waiter) withSocket(fd uintptr) {
	most := w.watch(w.own, int32(fd), 0)
	for _, m := range w.members {
		// A group that is left meanwhile is closed, and Wait woken:
		// it looks at a wrong descriptor for no longer than that.
		most = w.watch(m.ipSocket, m.fd, most)
	}
	timeout := -1
	if most > 0 {
		timeout = int(most / time.Millisecond)
	}
	if n, err := unix.Poll(w.fds, timeout); err == nil && n > 0 && w.fds[0].Revents != 0 {
		var b [64]byte
		for {
			if n, err := unix.Read(int(w.fds[0].Fd), b[:]); err != nil || n < len(b) {
				return
			}
		}
	}
}

// watch adds a socket to what is polled, unless receiving fails there: then it
// would be ready at once, to fail again. It returns for how long to wait, of
// which the shortest counts; 0 is for ever.
func (w *waiter) watch(s *ipSocket, fd int32, most time.Duration) time.Duration {
	if d := s.asleep(); d > 0 {
		if most == 0 || d < most {
			most = d
		}
		return most
	}
	w.fds = append(w.fds, unix.PollFd{Fd: fd, Events: unix.POLLIN})
	return most
}

// wake makes a wait return.
func (w *waiter) wake() {
	// It fails only on a closed link, whose Wait has ended.
	_ = w.raws[1].Control(w.write)
}

func (w *waiter) close() error {
	err := w.ends[0].Close()
	if e := w.ends[1].Close(); err == nil {
		err = e
	}
	return err
}
