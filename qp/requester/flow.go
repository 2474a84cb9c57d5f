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
	RTT      time.Duration // smoothed round trip time; 0: none was measured yet
}

// Flow returns how sending stands.
func (r *Requester) Flow() Flow {
	f := Flow{Queued: r.queue.Len(), Una: r.una, InFlight: r.InFlight(), Window: r.limit.Bytes}
	if r.rtt.known {
		f.RTT = r.rtt.srtt
	}
	return f
}
