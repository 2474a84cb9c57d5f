package owner

import "time"

// bucket bounds how often something happens.
type bucket struct {
	rate, burst float64 // in a second, at once
	tokens      float64
	last        time.Time
}

func newBucket(rate, burst float64, now time.Time) bucket {
	return bucket{rate: rate, burst: burst, tokens: burst, last: now}
}

// take takes one token, and returns how long to wait before it is there.
func (b *bucket) take(now time.Time) (wait time.Duration) {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.rate) - 1
	b.last = now
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.rate * float64(time.Second))
}

// allow takes one token, if there is one.
func (b *bucket) allow(now time.Time) bool {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.last).Seconds()*b.rate)
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
