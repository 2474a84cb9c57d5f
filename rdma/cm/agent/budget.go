package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// budget bounds how many answers strangers get in a second. To answer a request
// takes ten times as long as to see it, and a flood must leave time for the
// others. A peer whose first request was one of too many is answered when it
// asks again.
//
// Each source has a small share that no other can use up: where a flood comes
// from some sources, the others are answered at once.
type budget struct {
	rate                int // a second
	first, again, other meter
	sources             *[1 << sourceBits]share
}

// share is what the sources of one slot have had.
type share struct{ own, all meter }

const (
	// sourceBits says among how many slots the sources are spread.
	sourceBits = 10
	// Answers may come together, as many as these, after a quiet time.
	burst    = 4096
	ownBurst = 16
)

// forOwn reports whether a source has something left of its own share, and
// counts an answer. source is a hash.
func (b *budget) forOwn(now clock.Time, source uint64) bool {
	return b.share(source).own.take(now, b.rate>>sourceBits, ownBurst)
}

// forFirst reports whether a request is answered that has not come before, and
// counts it.
func (b *budget) forFirst(now clock.Time, source uint64) bool {
	return b.forOwn(now, source) || b.share(source).all.take(now, b.rate/2, burst) && b.first.take(now, b.rate, burst)
}

// forAgain does so for one that has come before.
func (b *budget) forAgain(now clock.Time, source uint64) bool {
	return b.forOwn(now, source) || b.again.take(now, b.rate, burst)
}

// forOther does so for what does not ask for a connection.
func (b *budget) forOther(now clock.Time) bool { return b.other.take(now, b.rate, burst) }

func (b *budget) share(source uint64) *share {
	if b.sources == nil {
		b.sources = new([1 << sourceBits]share)
	}
	return &b.sources[source>>(64-sourceBits)]
}

// meter is a leaky bucket: the time at which it is empty.
type meter clock.Time

// take lets one more through, unless too many came together.
func (m *meter) take(now clock.Time, rate, burst int) bool {
	each := time.Second / time.Duration(max(rate, 1))
	at := max(clock.Time(*m), now)
	if at.Sub(now) > each*time.Duration(burst-1) {
		return false
	}
	*m = meter(at.Add(each))
	return true
}
