package guard

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// askPause is between two times that keys of a peer are asked for, as
	// packets are to be sent to it.
	askPause = 100 * time.Millisecond

	// hintPause is between two times that keys of a peer are asked for, as
	// it seals with an unknown one. Hosts that there are no keys of at all
	// are asked of strangersPerSecond times, all together.
	hintPause          = time.Second
	strangersPerSecond = 100

	// silence is for how long packets leave, and nothing comes from where
	// they go, before others keys are asked for: doubled each time, up to
	// silenceMost. The peer may answer nothing, which it may be right to.
	silence, silenceMost = 500 * time.Millisecond, time.Minute
)

// contact is what a link knows of a peer beside its keys, which change.
type contact struct {
	heard  [4]atomic.Uint64 // a bit for each slot of the peer: a packet of it has come
	hinted time.Time        // when Recv has asked for keys
	asked  time.Time        // when Send has
	quiet  map[uint8]*quiet // by the slot of the peer; of Send
}

// quiet is how long nothing has come from a slot that packets leave for.
type quiet struct {
	since time.Time     // the first of them
	most  time.Duration // after which others keys are asked for
}

// hear notes that a packet has come from a slot.
func (c *contact) hear(slot uint8) {
	if w, bit := &c.heard[slot/64], uint64(1)<<(slot%64); w.Load()&bit == 0 {
		w.Or(bit)
	}
}

// hasHeard reports whether a packet has come from a slot since the last call.
func (c *contact) hasHeard(slot uint8) bool {
	w, bit := &c.heard[slot/64], uint64(1)<<(slot%64)
	if w.Load()&bit == 0 {
		return false
	}
	w.And(^bit)
	return true
}

// of returns how quiet a slot is.
func (c *contact) of(slot uint8) *quiet {
	q := c.quiet[slot]
	if q == nil {
		if c.quiet == nil {
			c.quiet = map[uint8]*quiet{}
		}
		q = &quiet{}
		c.quiet[slot] = q
	}
	return q
}

// leaves notes that a packet leaves for a slot, and reports whether nothing has
// come from there for long. A peer that was started again has no keys, and may
// have many strangers to ask. This side knows which one it is.
func (q *quiet) leaves(c *contact, slot uint8, now time.Time) bool {
	switch {
	case c.hasHeard(slot) || q.most == 0:
		q.since, q.most = now, silence
	case now.Sub(q.since) >= q.most:
		q.since, q.most = now, min(2*q.most, silenceMost)
		return true
	}
	return false
}

// contacts are those of the peers in the table.
type contacts struct {
	mu      sync.Mutex
	version uint64 // of the table
	of      map[netip.Addr]*contact
}

// refresh returns what there is of the peers of a version of the table. Recv
// and Send call it, each with the version that it has read.
func (c *contacts) refresh(list []Peer, version uint64) map[netip.Addr]*contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[netip.Addr]*contact, len(list))
	for i := range list {
		a := list[i].Addr
		if all[a] = c.of[a]; all[a] == nil {
			all[a] = &contact{}
		}
	}
	if version >= c.version {
		c.of, c.version = all, version
	}
	return all
}

// pass reports whether a pause has gone by, which begins anew then.
func pass(last *time.Time, pause time.Duration) bool {
	now := time.Now()
	if !last.IsZero() && now.Sub(*last) < pause {
		return false
	}
	*last = now
	return true
}

// strangers bounds how often keys are asked for that hosts without any are said
// to have: each packet may be forged.
type strangers struct {
	left  int // of this second
	since time.Time
}

func (s *strangers) may() bool {
	if pass(&s.since, time.Second) {
		s.left = strangersPerSecond
	}
	if s.left == 0 {
		return false
	}
	s.left--
	return true
}
