package responder

import (
	"github.com/gosoftroce/rocev2/rocev2"
)

// final is Responder.PollFinal.
func (t *transmitter) final(buf []byte) int {
	t.answers.reduce()
	if t.answers.queue.empty() {
		return 0
	}
	return t.writeShort(t.answers.first(), buf)
}

// finish ends the connection without a word but for the acknowledgement of what
// was executed.
func (a *answers) finish() {
	a.reduce()
	if a.fatal != nil {
		a.fatal.left = 0
	}
}

// reduce reduces the answers that wait to those that PollFinal writes. An
// acknowledgement must not pass the answer to a READ or an atomic, which is
// lost now: so it ends before the first of them.
func (a *answers) reduce() {
	ack := response{kind: responseAck, psn: a.lastAck, msn: a.msn}
	owed := a.unacked
	var nak response
	for i := a.queue.head; i != a.queue.tail; i++ {
		e := a.queue.at(i)
		switch {
		case e.kind >= responseRead && owed && !e.psn.After(ack.psn):
			res := a.of(e)
			ack.psn, ack.msn = e.psn.Add(-1), e.msn.Add(-1)
			owed = e.psn == res.first && res.pending == pendingFirst && !ack.psn.Before(a.firstUnacked)
		case e.kind == responseAck && !a.unacked && i == a.queue.head:
			ack, owed = *e, true // condensed before
		case e.kind == responseNAK && e.syndrome != rocev2.NAKSequence && !e.syndrome.IsRNR():
			nak = *e
		}
	}
	a.unacked = false
	a.queue.clear()
	if owed {
		a.queue.push(ack)
	}
	if nak.kind == responseNAK {
		a.queue.push(nak)
	}
}

// receipt is Responder.Receipt.
func (t *transmitter) receipt(buf []byte) (n int, first rocev2.PSN) {
	first, ok := t.answers.receipt()
	if !ok {
		return 0, 0
	}
	a := rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: t.answers.msn}
	return t.writeAck(buf, rocev2.RCAcknowledge, t.answers.lastAck, a), first
}

// receipt returns the first PSN that an acknowledgement of the last one may
// answer, if there may be one.
func (a *answers) receipt() (first rocev2.PSN, ok bool) {
	if !a.acked || a.lastAck.Next() != a.epsn {
		return 0, false
	}
	first = a.epsn.Add(-maxUnanswered)
	if a.res.pushed && a.res.after.After(first) {
		first = a.res.after
	}
	for i := range a.res.ring {
		e := &a.res.ring[i]
		switch end := e.first.Add(int(e.psns)); {
		case e.kind == resourceFree:
		case e.pending == pendingFirst:
			return 0, false
		case end.After(first):
			first = end
		}
	}
	return first, true
}
