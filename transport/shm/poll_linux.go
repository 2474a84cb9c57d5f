//go:build !portable

package shm

import (
	"syscall"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

var _ transport.PolledLink = (*Link)(nil)

// BeginPoll implements transport.PolledLink.
func (l *Link) BeginPoll(fds []int) (all []int, most time.Duration) {
	if l.closed.Load() || l.arm() {
		return fds, 0
	}
	return l.Wrapper.BeginPoll(fds)
}

// EndPoll implements transport.PolledLink.
func (l *Link) EndPoll() {
	l.Wrapper.EndPoll()
	l.rx.waited.Store(true)
}

// Files implements transport.PolledLink. The first link tells of those that the
// device has for all.
func (l *Link) Files() []int {
	fds := appendFile(l.Wrapper.Files(), l.events.f)
	for _, c := range *l.conns.Load() {
		fds = appendFile(append(fds, c.bell), c.socket)
	}
	if l.index > 0 {
		return fds
	}
	for _, dir := range l.dev.dirs {
		fds = appendFile(fds, dir.f)
	}
	for _, listener := range l.dev.listeners {
		fds = appendFile(fds, listener)
	}
	l.dev.mu.Lock()
	defer l.dev.mu.Unlock()
	for socket := range l.dev.talks {
		fds = appendFile(fds, socket)
	}
	return fds
}

// appendFile adds the descriptor of a file that is open.
func appendFile(fds []int, f syscall.Conn) []int {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
	}
	return fds
}
