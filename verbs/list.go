package verbs

import (
	"time"
)

// QPNs returns the numbers of the queue pairs that are open, in ascending
// order. It is cheap also with many thousands of them: a list that is shown in
// pages asks for all numbers, and by Device.QP for those of a page. A queue
// pair may be closed in between; then QP returns nil.
func (d *Device) QPNs() []QPN { return d.core.QPNs() }

// Flow is how the sending half of a queue pair stands at a moment.
type Flow struct {
	// Queued is how many send requests have not completed.
	Queued int

	// OldestPSN is the oldest that the peer has not acknowledged. Where
	// nothing is in flight it is Attr.SQPSN.
	OldestPSN PSN

	// InFlight is how many bytes are between it and Attr.SQPSN, those of
	// the answers to READs included.
	InFlight int

	// Window is how many bytes may be in flight. Congestion control changes
	// it.
	Window int

	// Rate is how many bits per second may be sent, headers counted, of
	// requests and of answers to the peer's READs. 0 means that no rate
	// bounds them. Congestion control changes it, and QP.SetRateLimit.
	Rate uint64

	// RTT is the smoothed round trip time to the peer. 0 means that it is
	// not measured yet: a queue pair that only answers does not measure.
	RTT time.Duration
}

// Flow returns how sending stands. Of queue pairs that send nothing, and of the
// unreliable services, which keep nothing in flight, it is zero.
func (q *QP) Flow() Flow {
	f := q.core.Flow()
	return Flow{Queued: f.Queued, OldestPSN: f.Una, InFlight: f.InFlight, Window: f.Window, Rate: f.Rate, RTT: f.RTT}
}

// QPStates returns how many queue pairs are open, by state. With thousands of
// queue pairs it takes some 100 ns for each, without keeping the datapath from
// its work for longer than that.
func (d *Device) QPStates() map[State]int {
	counts := map[State]int{}
	for _, n := range d.QPNs() {
		if q := d.core.QP(n); q != nil {
			counts[q.State()]++
		}
	}
	return counts
}
