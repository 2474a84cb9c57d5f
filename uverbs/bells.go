//go:build linux

package uverbs

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bell is what wakes a client: an eventfd that programs write to, and a
// deadline for who is in this process. Whoever has the eventfd may take away
// what another has written, fill it, and have writing and reading wait. So here
// it is neither written nor read: each write of a program is told by the poller
// that waits for it.
type bell struct {
	file *os.File
	fd   int
	raw  syscall.RawConn
}

// newBell makes a bell that can be waited for, or one that Go's poller does not
// know of.
func newBell(wait bool) (*bell, error) {
	flags := unix.EFD_CLOEXEC
	if wait {
		flags |= unix.EFD_NONBLOCK
	}
	fd, err := unix.Eventfd(0, flags)
	if err != nil {
		return nil, fmt.Errorf("doorbell: %w", err)
	}
	b := &bell{file: os.NewFile(uintptr(fd), "doorbell"), fd: fd}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("doorbell: %w", err), b.file.Close())
	}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("doorbell: %w", err), b.file.Close())
	}
	return b, nil
}

// ring wakes the client. It never waits.
func (b *bell) ring() { _ = b.file.SetReadDeadline(time.Unix(1, 0)) }

// wait waits for a ring, unless ready reports that there is something to do: it
// is asked when no ring can be missed any more. An error means that there are
// no more.
func (b *bell) wait(ready func() bool) error {
	asked := false
	err := b.raw.Read(func(uintptr) bool {
		if asked {
			return true
		}
		asked = true
		return ready()
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = b.file.SetReadDeadline(time.Time{})
	}
	return err
}

const (
	// turnOf is how many requests of a queue pair are posted before others
	// have their turn.
	turnOf = 64
	// leastSpin and mostSpin bound for how long a client looks before it
	// sleeps.
	leastSpin = 2 * time.Microsecond
	mostSpin  = 20 * time.Microsecond
)

// spin is for how long a client looks before it sleeps, which follows what came
// of it. In the middle of a bulk transfer programs ring again at once, and to
// wake somebody costs them more than anything else. In a ping-pong they wait
// for a round trip, and need the processor meanwhile.
type spin time.Duration

// newSpin returns how it begins: not at all where it would keep the program
// from the only processor.
func newSpin() spin {
	if runtime.GOMAXPROCS(0) == 1 {
		return 0
	}
	return spin(mostSpin)
}

// look waits for rung, and reports whether it was worth it.
func (s *spin) look(rung func() bool) bool {
	if *s == 0 {
		return rung()
	}
	for until := time.Now().Add(time.Duration(*s)); ; runtime.Gosched() {
		switch {
		case rung():
			*s = min(2**s, spin(mostSpin))
			return true
		case !time.Now().Before(until):
			*s = max(*s/2, spin(leastSpin))
			return false
		}
	}
}

// serveBells posts what the program has rung for, until the client closes.
func (c *Client) serveBells() {
	look := newSpin()
	var inVain vain
	for !c.stopped() {
		rang := c.serveOnce()
		if c.posted {
			c.posted = false
			inVain.useful()
			continue
		}
		if d := inVain.again(); d > 0 {
			c.pause(d)
			continue
		}
		if rang || look.look(c.rung) {
			continue
		}
		c.area.sleeping.Store(1)
		if err := c.bell.wait(func() bool { return c.rung() || c.stopped() }); err != nil {
			return
		}
		c.area.sleeping.Store(0)
	}
}

// stopped reports whether the client closes.
func (c *Client) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// rung reports whether the program has rung.
func (c *Client) rung() bool {
	for i := range c.area.summary {
		if c.area.summary[i].Load() != 0 {
			return true
		}
	}
	return false
}

// servedAtOnce is after how many queue pairs others have their turn.
const servedAtOnce = 16

// serveOnce serves queue pairs that were rung for once: all of them, or many,
// and the next call goes on behind those. It reports whether there was any.
func (c *Client) serveOnce() bool {
	first, served := c.next, 0
	before := uint64(1)<<(first%64) - 1 // words that have their turn at last
	n := len(c.area.summary)
	for i := range n + 1 {
		s := (first/64 + i) % n
		if c.area.summary[s].Load() == 0 {
			continue
		}
		words := c.area.summary[s].Swap(0)
		if i == 0 && words&before != 0 {
			c.area.summary[s].Or(words & before)
			words &^= before
		}
		for ; words != 0; words &= words - 1 {
			w := s*64 + bits.TrailingZeros64(words)
			if served >= servedAtOnce {
				c.next = w
				c.area.summary[s].Or(words)
				return true
			}
			served += c.serveWord(w)
		}
	}
	return served > 0
}

// serveWord serves the queue pairs of a word of the bells that were rung for,
// and returns how many.
func (c *Client) serveWord(w int) (served int) {
	set := c.area.bells[w].Swap(0)
	if w*64 >= c.qps.size() { // nobody else rings there
		return 0
	}
	for ; set != 0; set &= set - 1 {
		served++
		c.serve(uint32(w*64 + bits.TrailingZeros64(set)))
	}
	return served
}

// serve posts what waits in the send queue of a queue pair.
func (c *Client) serve(h uint32) {
	q := c.qps.get(h)
	if q == nil {
		return
	}
	more := q.serve()
	if q.queues.posted.Swap(false) {
		c.posted = true
	}
	if more {
		c.ringFor(h)
	}
}

// ringFor has a queue pair served soon, as the program does. It may be called
// with any lock held.
func (c *Client) ringFor(h uint32) {
	c.area.bells[h/64].Or(1 << (h % 64))
	c.area.summary[h/64/64].Or(1 << (h / 64 % 64))
	if c.area.sleeping.Load() != 0 && c.area.sleeping.Swap(0) != 0 {
		c.courier.kick()
	}
}
