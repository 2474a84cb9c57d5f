//go:build !portable

package shm

import (
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

// Files implements transport.PolledLink.
func (l *Link) Files() []int {
	fds := append(l.Wrapper.Files(), int(l.events.f.Fd()))
	for _, c := range *l.conns.Load() {
		fds = append(fds, c.bell)
	}
	return fds
}
