package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// rnrInfinite is the RNR retry count that stands for no limit (IBTA 9.7.5.2.8).
const rnrInfinite = 7

// rnr is the wait of a requester whose peer had no receive posted.
type rnr struct {
	deadline clock.Time
	waiting  bool
	limit    uint8
	left     uint8
}

func (r *rnr) configure(count uint8) { r.limit, r.left = count, count }

func (r *rnr) reset() { r.waiting, r.left = false, r.limit }

// nak starts a wait. It returns false if no retry is left.
func (r *rnr) nak(now clock.Time, delay time.Duration) bool {
	if r.limit != rnrInfinite {
		if r.left == 0 {
			return false
		}
		r.left--
	}
	r.waiting, r.deadline = true, now.Add(delay)
	return true
}

// expired reports, once, that the wait is over.
func (r *rnr) expired(now clock.Time) bool {
	if !r.waiting || now < r.deadline {
		return false
	}
	r.waiting = false
	return true
}
