package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// WithTimestamps has every completion carry the time of Device.Now at which it
// was added to the queue.
func WithTimestamps() CQOption { return func(c *cqOptions) { c.timestamps = true } }

// WithVector gives the queue a completion vector, which is a shard: queue pairs
// that complete into it live there, and a goroutine that polls or waits for it
// drives that shard and no other.
func WithVector(i int) CQOption {
	return func(c *cqOptions) { c.vectored, c.vector = true, i }
}

// cqConfig applies the options.
func (d *Device) cqConfig(opts []CQOption) (cqConfig, error) {
	var c cqOptions
	for _, f := range opts {
		f(&c)
	}
	if !c.vectored {
		return c.cqConfig, nil
	}
	if err := checkRange("completion vector", c.vector, 0, len(d.shards)-1); err != nil {
		return cqConfig{}, err
	}
	c.shard = d.shards[c.vector]
	return c.cqConfig, nil
}

// CompletionVectors returns the number of completion vectors: one a shard.
func (d *Device) CompletionVectors() int { return len(d.shards) }

// Overrun returns the first completion that was lost since the queue has its
// size.
func (cq *CQ) Overrun() Overrun {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.seldom == nil {
		return Overrun{}
	}
	return cq.seldom.lost
}

// Resize changes the size to at least n entries (IBTA 11.2.8.3). Nothing that
// the queue holds is lost: with more than n in it nothing changes, and the
// error is a *RangeError. Queue pairs may complete meanwhile, and programs
// poll.
func (cq *CQ) Resize(n int) error {
	if err := checkRange("completion queue size", n, 1, cq.owner.dev.limits.CQE); err != nil {
		return err
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	held := cq.tail - cq.head
	switch {
	case cq.closed:
		return ErrClosed
	case int(held) > n:
		return &RangeError{What: "size of a completion queue that has unpolled completions", Got: n, Min: int(held), Max: cq.owner.dev.limits.CQE}
	}
	if cq.size = ringSize(n); cq.size < len(cq.ring) {
		cq.moveTo(make([]ib.WC, cq.size))
	}
	if cq.seldom != nil {
		cq.seldom.lost = Overrun{}
	}
	return nil
}

// SetModeration sets the moderation (IBTA has none; ibv_modify_cq). A
// notification that is held back is given at once. The error is a *RangeError
// or ErrClosed.
func (cq *CQ) SetModeration(m Moderation) error {
	if err := checkRange("moderation count", m.Count, 0, MaxModerationCount); err != nil {
		return err
	}
	if m.Period < 0 || m.Period > MaxModerationPeriod {
		return &RangeError{What: "moderation period in µs", Got: int(m.Period / time.Microsecond), Max: int(MaxModerationPeriod / time.Microsecond)}
	}
	cq.mu.Lock()
	if cq.closed {
		cq.mu.Unlock()
		return ErrClosed
	}
	s := cq.makeSeldom()
	s.moderation = m
	ch, notify := cq.channel, s.waiting > 0 && cq.channel != nil
	if notify {
		cq.notify()
	}
	cq.mu.Unlock()
	if notify {
		ch.parker.signal()
	}
	return nil
}

// Moderation returns what SetModeration has set.
func (cq *CQ) Moderation() Moderation {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.seldom == nil {
		return Moderation{}
	}
	return cq.seldom.moderation
}

// timeUp gives a notification that was held back for long enough. The result
// says when to come again, if at all.
func (cq *CQ) timeUp(now clock.Time) (again clock.Time, ok bool) {
	cq.mu.Lock()
	s := cq.seldom
	if s.waiting > 0 && now < s.until {
		defer cq.mu.Unlock()
		return s.until, true
	}
	s.timed = false
	ch, notify := cq.channel, s.waiting > 0 && cq.channel != nil
	if notify {
		cq.notify()
	}
	cq.mu.Unlock()
	if notify {
		ch.parker.signal()
	}
	return 0, false
}
