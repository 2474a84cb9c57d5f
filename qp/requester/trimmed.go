package requester

import (
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Lost takes the news that a packet in flight is lost, see qp.Lost.
func (r *Requester) Lost(now clock.Time, psn rocev2.PSN, response bool) {
	r.recovery.told(now, psn, response)
}

// told is Lost.
func (r *recovery) told(now clock.Time, psn rocev2.PSN, response bool) {
	s := r.s
	if s.c.Pool == nil || s.c.Failed() || s.goesAgain() || r.holds() || psn.Ahead(s.una) >= s.inFlight() {
		return
	}
	if n := r.kept().loseAt(now, psn, response); n > 0 {
		r.heard(now)
		r.lost(now, cc.Selective, n)
	}
}

// loseAt records that a request, or a response to a READ, is lost, and returns
// how many packets are to be sent for that. What is before it is on its way, as
// far as is known.
func (g *gaps) loseAt(now clock.Time, psn rocev2.PSN, response bool) int {
	before := g.lost()
	if response {
		if g.s.readsUntil(psn.Next()) != psn.Next() {
			return 0
		}
		g.openReads(now).LoseAt(psn, g.s.una)
	} else {
		b := g.openBoard(now)
		b.LoseAt(psn, g.s.una)
		g.s.answers(b)
	}
	g.noteGaps()
	return max(g.lost()-before, 0)
}
