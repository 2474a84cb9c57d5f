package server

import (
	"sync"
	"time"
)

// leaseRates knows how fast leases send and receive, for the page: it compares
// with what they had some seconds ago. Several readers share that.
type leaseRates struct {
	mu     sync.Mutex
	before leaseSample // what is compared with
	latest leaseSample // what will be
}

type leaseSample struct {
	at     time.Time
	passed map[leaseKey][2]uint64
}

// leaseKey is a lease among those of all times.
type leaseKey struct {
	device string
	slot   int
	since  time.Time
}

// rateTime is the shortest time that rates are of.
const rateTime = time.Second

// of returns what adds to a lease its rates. leases are all that there are.
func (r *leaseRates) of(now time.Time, leases []leaseInfo) func(*leaseInfo) ratedLease {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.latest.at) >= rateTime {
		r.before = r.latest
		r.latest = leaseSample{now, map[leaseKey][2]uint64{}}
		for i := range leases {
			l := &leases[i]
			r.latest.passed[keyOfLease(l)] = [2]uint64{l.TxBytes, l.RxBytes}
		}
	}
	before := r.before
	return func(l *leaseInfo) ratedLease {
		rated := ratedLease{*l, -1, -1}
		seconds := now.Sub(before.at).Seconds()
		if was, ok := before.passed[keyOfLease(l)]; ok && seconds > 0 && l.TxBytes >= was[0] && l.RxBytes >= was[1] {
			rated.tx, rated.rx = float64(l.TxBytes-was[0])/seconds, float64(l.RxBytes-was[1])/seconds
		}
		return rated
	}
}

func keyOfLease(l *leaseInfo) leaseKey { return leaseKey{l.Device, l.Slot, l.Since} }
