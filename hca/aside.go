package hca

import (
	"errors"
	"os"
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// Aside is work that reaches a device beside its link: what programs of other
// processes post. Whoever waits for the link does it, so that one goroutine
// handles both what they post and what is answered. Its methods are called
// without locks, and must not wait.
type Aside interface {
	// Look does what there is to do, and reports whether there was any.
	Look() bool

	// Sleep is called before the link is waited for: who has work from now
	// on makes the file readable. It reports whether there is work already.
	Sleep() bool

	// Awake is called after that, unless the link is closed: nobody looks
	// any more then.
	Awake()

	// Polling reports whether a program has polled in vain since the last
	// call: it gave the processor to others then. It is called again and
	// again while Look is, with the time.
	Polling(now clock.Time) bool

	// Attend says that Look and Polling are called again and again from now
	// on, or no longer.
	Attend(on bool)

	// Notified reports whether a program was told of a completion that it
	// waits for since the last call.
	Notified() bool
}

// errNoAside says that the link waits for nothing else.
var errNoAside = errors.New("the link does not wait for other files")

// SetAside has work done that reaches the device beside its link. The link is
// no longer waited for when f is readable; then ready is called. f is closed
// after the device. It is called once.
func (d *Device) SetAside(f *os.File, ready func(), a Aside) error {
	s := d.shards[0]
	l, ok := s.link.(asideLink)
	if !ok {
		return errNoAside
	}
	if err := l.WaitAlso(f, ready); err != nil {
		return err
	}
	s.aside.Store(&besides{a, l})
	s.link.Wake()
	return nil
}

// WakeAside has Look called soon. It may be called with any lock held.
func (d *Device) WakeAside() { d.shards[0].link.Wake() }

// lookAside does what there is beside the link, and reports whether there was
// any.
func lookAside(s *shard) bool {
	b := s.aside.Load()
	return b != nil && b.Look()
}

// asideLink is a link that can be waited for together with another file.
type asideLink interface {
	WaitAlso(f *os.File, ready func()) error
	WaitAtMost(d time.Duration)
}

// besides is what there is beside a link.
type besides struct {
	Aside
	link asideLink
}

// waitAside blocks in the link, or does what there is beside it. It reports
// whether there was any of that. An error says that the link is closed: nobody
// is awake for programs any more.
func waitAside(s *shard) (aside bool, err error) {
	b := s.aside.Load()
	if b == nil {
		return false, s.link.Wait()
	}
	switch {
	case !b.Sleep():
		if s.poller.delayed.Load() {
			b.link.WaitAtMost(longestVigil) // acknowledgements wait for it
		}
		err = s.link.Wait()
	case over(s): // who has always work does not keep the device from its end
		err = ErrClosed
	}
	if err != nil {
		return false, err
	}
	b.Awake()
	return b.Look(), nil
}

// over reports whether the shard is closed.
func over(s *shard) bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
