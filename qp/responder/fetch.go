package responder

import (
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Fetch returns the next memory that must be fetched, each once.
func (r *Responder) Fetch() (conn.Fetch, bool) {
	f, ok := r.fetch.Poll(conn.NeedMessage)
	f.Ticket = r.ticket
	return f, ok
}

// WantsFetch reports whether Fetch has something to return.
func (r *Responder) WantsFetch() bool { return r.fetch.Any() }

// Fetched has what waited for a fetch go on. It may come late.
func (r *Responder) Fetched(need conn.Need) {
	if r.fetch.Done(need) && need == conn.NeedMessage && r.nakSent && r.epsn == r.pagePSN {
		r.firstGap = r.epsn
		r.out.nak(rocev2.NAKSequence, r.epsn, r.msn)
	}
}

// waitsForPage reports whether the expected request was dropped and will be
// asked for.
func (r *Responder) waitsForPage() bool {
	return r.fetch.Pending(conn.NeedMessage) && r.pagePSN == r.epsn
}

// dropForPage drops the expected request. What follows it may be kept, and gets
// no NAK: that comes with the page.
func (r *Responder) dropForPage(m memreg.Missing) conn.Drop {
	r.nakSent, r.nakForGap, r.firstGap = true, true, r.epsn
	if !r.waitsForPage() {
		r.pagePSN = r.epsn
		r.fetch.Add(conn.NeedMessage, m)
	}
	return conn.DropNotPresent
}
