package hca

import "sync/atomic"

const (
	// lingerPolls without a packet are some 100 µs.
	lingerPolls = 200
	// leastPolls find out whether it pays again to linger.
	leastPolls = 4
)

// lingering says how long a shard goes on receiving in the middle of a bulk
// transfer when nothing comes. Where packets came meanwhile it is longer the
// next time, and shorter where none did: many processes share the processors,
// and the peer's process needs one to send the next packet.
type lingering struct {
	less atomic.Int32 // than lingerPolls
}

func (l *lingering) polls() int { return int(lingerPolls - l.less.Load()) }

// paid has found packets.
func (l *lingering) paid() {
	if less := l.less.Load(); less > 0 {
		l.less.Store(less / 2)
	}
}

// failed has found none.
func (l *lingering) failed() {
	left := lingerPolls - l.less.Load()
	l.less.Store(lingerPolls - max(left/2, leastPolls))
}

// linger goes on receiving in the middle of a bulk transfer, until nothing has
// come for a while or until done, and reports whether there was one. If this
// side went to sleep between two buffers, the sender would have to wake it for
// each, which costs the sender more than anything else that it does.
func (s *shard) linger(done func() bool) bool {
	if !s.bulk.Swap(false) {
		return false
	}
	most, came := s.lingering.polls(), false
	for i := 0; i < most; i++ {
		if done() {
			return true
		}
		if s.receive() > 0 {
			i, came = 0, true
			s.lingering.paid()
		}
	}
	if !came {
		s.lingering.failed()
	}
	return true
}
