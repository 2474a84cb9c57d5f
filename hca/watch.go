package hca

import "sync/atomic"

// sleepless is after how many posts in a row without a wait a program counts as
// one that never sleeps.
const sleepless = 8

// mostPollsOn bounds what is remembered of a program that polls on after
// answers. One that looks at its memory posts next at least two times out of
// three, or it does not count as one.
const mostPollsOn = 16

// Poll is Progress for a program that may not call again before a peer has
// written to its memory: one that waits for a byte to change, after it has
// taken the completion of its own request. When only answers have come since it
// has posted, it goes on looking for a request for as long as that was seen to
// pay (vigil), unless the program is one that polls on all the same: what it
// has got waits meanwhile.
func (d *Device) Poll() bool {
	s := d.shards[0]
	if len(d.shards) > 1 || s.spin <= 1 || s.driven != nil {
		return d.Progress()
	}
	if s.answered.Load() && s.answered.Swap(false) {
		s.pollsOn.polls()
	}
	any := s.progress()
	d.yield.polled(any)
	if !any || s.asked.Load() {
		return any
	}
	s.answered.Store(true)
	if s.pollsOn.Load() < mostPollsOn/2 && s.watching.CompareAndSwap(false, true) {
		watch(s)
		s.watching.Store(false)
	}
	return true
}

// pollsOn is how often a program polls on after answers, without a post in
// between: then it does not look at its memory.
type pollsOn struct{ atomic.Int32 }

func (p *pollsOn) polls() {
	if n := p.Load(); n < mostPollsOn {
		p.Store(n + 1)
	}
}

// posts records that the program posts next, as one does that has looked at its
// memory meanwhile.
func (p *pollsOn) posts() {
	if n := p.Load(); n > 0 {
		p.Store(max(n-2, 0))
	}
}

// Posts says that the program is about to post.
func (d *Device) Posts() {
	s := d.shards[0]
	if s.asked.Load() {
		s.asked.Store(false)
	}
	if s.answered.Load() && s.answered.Swap(false) {
		s.pollsOn.posts()
	}
	if n := s.posts.Load(); n < sleepless {
		s.posts.Store(n + 1)
	}
}

// sleeps says that the program waits.
func sleeps(s *shard) {
	if s.posts.Load() != 0 {
		s.posts.Store(0)
	}
}

// watch looks for a request of a peer. Whatever comes ends it.
//
// A program that never sleeps has a processor of its own, or shares it with
// others whatever is done here. So it watches on where others have had the
// processor. When it ceases to watch it looks at its memory alone: the receiver
// takes over at once.
func watch(s *shard) {
	v := &s.watched
	start := s.now()
	v.earn(start)
	limit := v.limit(start)
	if limit == 0 {
		return
	}
	awake := s.posts.Load() == sleepless
	looked := start
	for polls := 1; ; polls++ {
		n := take(s)
		if n == 0 && polls%vigilClockPolls != 0 {
			continue
		}
		now := s.now()
		if away := now.Sub(looked); away > preempted {
			if !awake {
				v.ban(now)
				return
			}
			start = start.Add(away) // it has cost nothing
		}
		looked = now
		waited := now.Sub(start)
		switch {
		case n > 0 && s.asked.Load():
			v.came(min(waited, longestVigil))
			return
		case n > 0 || waited >= limit:
			v.vain(min(waited, longestVigil))
			if awake && v.gap > 0 {
				s.poller.call()
			}
			return
		}
	}
}
