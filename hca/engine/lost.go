package engine

import (
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Lost tells the queue pair with a number that a packet is lost, see qp.Lost.
// The driver must know that from something it trusts. Fill may then have
// something to send.
func (e *Engine) Lost(now clock.Time, n rocev2.QPN, psn rocev2.PSN, response bool) (r Ready) {
	e.now = now
	if q := e.table.get(n); q != nil && q.core.Reliable() {
		qp.Lost(q.core, now, psn, response)
		e.in.handled(&r, q, false)
	}
	return r
}
