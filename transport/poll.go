package transport

import "time"

// PolledLink is a link that a thread can wait for by poll(2), in place of Wait:
// one that is no goroutine, and has other files to wait for.
type PolledLink interface {
	Link

	// BeginPoll begins a Wait. It adds to fds what is to be polled for
	// reading, for most unless that is 0. It adds nothing where
	// a Wait would not block.
	BeginPoll(fds []int) (all []int, most time.Duration)

	// EndPoll ends it, after the poll.
	EndPoll()

	// Files returns the descriptors that the link has, at the moment.
	Files() []int
}

// AsPolled returns l as a PolledLink, nil if it is none.
func AsPolled(l Link) PolledLink {
	if w, ok := l.(interface{ polled() PolledLink }); ok {
		if p := w.polled(); p == nil {
			return nil
		}
	}
	p, _ := l.(PolledLink)
	return p
}
