package tcp

import "github.com/gosoftroce/rocev2/fabric/event"

// The retransmission timeout (RFC 6298).
const (
	firstRTO    = 1 * event.Second      // 2.1
	afterSYN    = 3 * event.Second      // 5.7: where the SYN was lost
	mostRTO     = 60 * event.Second     // 2.5
	granularity = 1 * event.Microsecond // G

	// DefaultMinRTO is 2.4's.
	DefaultMinRTO = 1 * event.Second
)

// rto is the timeout of a connection, and the round trip that it is from.
type rto struct {
	least        event.Time
	srtt, rttvar event.Time // srtt 0: nothing was measured yet
	value        event.Time
}

func newRTO(least event.Time) rto { return rto{least: least, value: firstRTO} }

// sample takes a round trip (2.2, 2.3): alpha is 1/8, beta 1/4, K 4.
func (r *rto) sample(rtt event.Time) {
	rtt = max(rtt, 1)
	if r.srtt == 0 {
		r.srtt, r.rttvar = rtt, rtt/2
	} else {
		r.rttvar += (max(r.srtt-rtt, rtt-r.srtt) - r.rttvar) / 4
		r.srtt += (rtt - r.srtt) / 8
	}
	r.value = min(max(r.srtt+max(granularity, 4*r.rttvar), r.least), mostRTO)
}

// backOff doubles the timeout (5.5).
func (r *rto) backOff() { r.value = min(2*r.value, mostRTO) }
