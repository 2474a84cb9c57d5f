package responder

import (
	"github.com/gosoftroce/rocev2/rocev2"
)

// PollFinal writes what the peer must be told before the queue pair is taken
// away: the acknowledgement of what was executed, whether it was asked for or
// not, and the NAK that ended the connection. It returns the length of the next
// such packet, 0 if there is none, and drops all other answers.
func (r *answerer) PollFinal(buf []byte) int {
	r.reduceToFinal()
	if r.out.empty() {
		return 0
	}
	e := r.out.at(r.out.head)
	r.out.head++
	return r.buildShort(e, buf)
}

// reduceToFinal reduces the answers that wait to those that PollFinal writes.
// An acknowledgement must not pass the answer to a READ or an atomic, which is
// lost now: so it ends before the first of them.
func (r *answerer) reduceToFinal() {
	ack := response{kind: responseAck, psn: r.lastAck, msn: r.msn}
	owed := r.unacked
	var nak response
	for i := r.out.head; i != r.out.tail; i++ {
		e := r.out.at(i)
		switch {
		case e.kind >= responseRead && owed && !e.psn.After(ack.psn):
			res := r.res.at(e.res)
			ack.psn, ack.msn = e.psn.Add(-1), e.msn.Add(-1)
			owed = e.psn == res.first && res.pending == pendingFirst && !ack.psn.Before(r.firstUnacked)
		case e.kind == responseAck && !r.unacked && i == r.out.head:
			ack, owed = *e, true // condensed before
		case e.kind == responseNAK && e.syndrome != rocev2.NAKSequence && !e.syndrome.IsRNR():
			nak = *e
		}
	}
	r.unacked = false
	r.out.clear()
	if owed {
		r.out.push(ack)
	}
	if nak.kind == responseNAK {
		r.out.push(nak)
	}
}

// acknowledges takes note that a packet acknowledges what comes before and up
// to psn.
func (r *answerer) acknowledges(psn rocev2.PSN) {
	if r.unacked && !psn.Before(r.firstUnacked) {
		r.firstUnacked = psn.Next()
		r.unacked = !r.firstUnacked.After(r.lastAck)
	}
}

// Receipt writes the acknowledgement of all that was executed, for a peer that
// asks again when the queue pair has gone, and returns its length. It may
// answer the SENDs and WRITEs from first on. It is 0 where the last that was
// executed was none, or where the answer to a READ or an atomic before it was
// not sent.
func (r *Responder) Receipt(buf []byte) (n int, first rocev2.PSN) {
	if !r.acked || r.lastAck.Next() != r.epsn {
		return 0, 0
	}
	first = r.epsn.Add(-maxUnanswered)
	if r.res.pushed && r.res.behind.After(first) {
		first = r.res.behind
	}
	for i := range r.res.ring {
		e := &r.res.ring[i]
		switch end := e.first.Add(int(e.psns)); {
		case e.kind == resourceFree:
		case e.pending == pendingFirst:
			return 0, 0
		case end.After(first):
			first = end
		}
	}
	return r.buildAck(buf, rocev2.RCAcknowledge, r.lastAck, rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: r.msn}), first
}
