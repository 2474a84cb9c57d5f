package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
)

// Flow is how the sending of a queue pair stands at a moment.
type Flow struct {
	Queued   int           // requests that have not completed
	Una      rocev2.PSN    // the oldest that is not acknowledged
	InFlight int           // bytes between it and the next one, as package cc counts them
	Window   int           // how many these may be
	Rate     uint64        // bits per second that may be sent; 0: no rate bounds them
	RTT      time.Duration // smoothed round trip time; 0: none was measured yet
}

// Flow returns how sending stands.
func (r *Requester) Flow() Flow {
	f := Flow{Queued: r.queue.Len(), Una: r.una, InFlight: r.InFlight(), Window: r.c.CC.Limit.Bytes,
		Rate: r.c.CC.Limit.Rate}
	if r.rtt.known {
		f.RTT = r.rtt.srtt
	}
	return f
}
