//go:build !portable

package udp

import (
	"os"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

var _ transport.PolledLink = (*Link)(nil)

// BeginPoll implements transport.PolledLink.
func (l *Link) BeginPoll(fds []int) (all []int, most time.Duration) {
	w := &l.waiting
	if l.closed.Load() || w.more.Load() {
		return fds, 0
	}
	fds = appendFile(fds, w.event)
	if k := w.failing.Load(); k > 0 {
		return fds, pause(k) // see waiter.block
	}
	fds = appendFile(fds, l.file)
	if l.groups.any.Load() {
		fds = appendFile(fds, l.groups.watch.file)
	}
	if o := w.other.Load(); o != nil {
		_ = o.raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
	}
	return fds, 0
}

// EndPoll implements transport.PolledLink.
func (l *Link) EndPoll() {
	w := &l.waiting
	if w.woken.Load() && w.woken.Swap(false) {
		_ = w.raw.Control(w.reset)
	}
	if o := w.other.Load(); o != nil {
		o.ready()
	}
}

// Files implements transport.PolledLink.
func (l *Link) Files() []int {
	fds := appendFile(appendFile(nil, l.file), l.waiting.event)
	for _, s := range *l.others.byPort.Load() {
		fds = appendFile(fds, s.file)
	}
	l.groups.mu.Lock()
	for _, s := range l.groups.joined {
		fds = appendFile(fds, s.file)
	}
	fds = appendFile(fds, l.groups.watch.file)
	l.groups.mu.Unlock()
	fds = appendFile(fds, l.watch.Load())
	l.routes.mu.Lock()
	defer l.routes.mu.Unlock()
	if l.routes.has {
		fds = append(fds, l.routes.fd)
	}
	return fds
}

// appendFile adds the descriptor of a file that is open.
func appendFile(fds []int, f *os.File) []int {
	if f == nil {
		return fds
	}
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) })
	}
	return fds
}
