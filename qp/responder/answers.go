package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// answers is what was executed, as far as the peer may ask for it again, and
// what it is to be told. It touches no memory and writes no packet.
type answers struct {
	c *conn.Conn

	epsn         rocev2.PSN // expected
	msn          rocev2.PSN // messages completed
	lastAck      rocev2.PSN // the latest SEND or WRITE packet executed
	firstUnacked rocev2.PSN
	acked        bool  // lastAck is set
	unacked      bool  // nothing that was sent acknowledges what lies from firstUnacked to lastAck
	flushing     uint8 // FLUSHes among what waits that are not done: nothing that writes may pass them

	res   resources
	queue responses
	fatal *fatalNAK // nil while the connection has not ended
}

// fatalNAK is why the connection ended (IBTA 9.7.5.2). A peer that asks again,
// for the request that was refused or for one that has no answer because of it,
// gets the NAK again: otherwise it would learn nothing but a timeout.
type fatalNAK struct {
	first    rocev2.PSN // of the first request without an answer
	refused  rocev2.PSN // of the request that was refused
	last     rocev2.PSN // that was told of: what comes after it is of the same attempt
	syndrome rocev2.Syndrome
	left     uint8 // repetitions
}

const fatalRepeats = 8

// code returns the NAK that a request gets: one before the refused one was
// right, but there is no answer to it any more.
func (f *fatalNAK) code(psn rocev2.PSN) rocev2.Syndrome {
	if psn.Ahead(f.first) < f.refused.Ahead(f.first) {
		return rocev2.NAKRemoteOperational
	}
	return f.syndrome
}

// resize takes another max_dest_rd_atomic. No answer may wait.
func (a *answers) resize(depth int) {
	a.res.resize(depth)
	a.queue.resize(int(a.res.depth))
}

// begin expects PSN first.
func (a *answers) begin(first rocev2.PSN) { a.epsn, a.msn = first, 0 }

// full reports whether there is no room for another answer.
func (a *answers) full() bool { return a.queue.full() }

// moveOn moves on after n packets of a SEND or WRITE, of which none waits for
// its acknowledgement yet. They may complete a message.
func (a *answers) moveOn(n int, message bool) {
	if message {
		a.msn = a.msn.Next()
	}
	if !a.unacked {
		a.unacked, a.firstUnacked = true, a.epsn
	}
	a.lastAck, a.acked = a.epsn.Add(n-1), true
	a.epsn = a.epsn.Add(n)
}

// acknowledge acknowledges what was executed up to psn.
func (a *answers) acknowledge(psn rocev2.PSN) {
	a.c.Stats.AcksMerged += uint64(a.queue.ack(psn, a.msn))
}

// nak adds a NAK for the expected packet, unless the same one waits already,
// and twice if that is wanted and there is room.
func (a *answers) nak(s rocev2.Syndrome, twice bool) {
	if a.queue.nak(s, a.epsn, a.msn) && twice && !a.queue.full() {
		a.queue.push(*a.queue.at(a.queue.tail - 1))
	}
}

// age forgets what is too old to be asked for when the expected PSN moves on by
// n. It returns false if that may not be yet: an answer waits which would be
// too old to be told from a new one.
func (a *answers) age(n uint32) bool {
	for i := range a.res.ring {
		if e := &a.res.ring[i]; e.kind != resourceFree && e.pending == pendingFirst && a.epsn.Ahead(e.first)+n > maxUnanswered {
			return false
		}
	}
	a.res.each(func(e *resource, index uint8) {
		if e.kind != resourceFree && a.epsn.Ahead(e.first)+n > ageLimit {
			if e.pending != pendingNone {
				a.queue.cancel(index)
			}
			*e = resource{}
		}
	})
	a.res.pushed = a.res.pushed && a.epsn.Ahead(a.res.after)+n <= ageLimit
	a.acked = a.acked && a.epsn.Ahead(a.lastAck)+n <= ageLimit
	return true
}

// busy reports whether a READ or an atomic must wait for earlier answers to be
// sent: the peer has more outstanding than agreed.
func (a *answers) busy() bool {
	e, _ := a.res.oldest()
	return e.pending == pendingFirst
}

// add adds the answer to a READ, an atomic, an ATOMIC WRITE or a FLUSH that was
// executed, and keeps it in case the peer asks again (IBTA 9.7.5.1.6).
func (a *answers) add(p *rocev2.Packet, op rocev2.Operation, psns uint32, value uint64) {
	psn := a.epsn
	e, index := a.reserve(psns)
	e.keep(a.c, p, op, value)
	if e.kind == resourceRead {
		w := a.queue.add()
		w.kind, w.res, w.psn, w.start, w.msn, w.left, w.end = responseRead, index, psn, psn, a.msn, psns, e.length
		return
	}
	kind := e.answer()
	if kind == responseFlush {
		a.flushing++
	}
	a.queue.push(response{kind: kind, res: index, psn: psn, msn: a.msn})
}

// reserve has a READ or an atomic take the place of the oldest one in the ring,
// and moves on after it. A READ takes a PSN for each packet of its response
// (IBTA 9.7.3). The caller fills in what is kept.
func (a *answers) reserve(psns uint32) (e *resource, index uint8) {
	e, index = a.res.oldest()
	a.res.push(e)
	if e.pending == pendingReplay {
		// A late duplicate asks for this, or a peer that has more
		// outstanding than agreed.
		if to, ok := a.res.addBeside(*e); ok {
			a.queue.move(index, to)
		} else {
			a.queue.cancel(index)
		}
	}
	e.pending, e.first, e.psns = pendingFirst, a.epsn, psns
	a.res.next++
	a.msn = a.msn.Next()
	a.epsn = a.epsn.Add(int(psns))
	return e, index
}

// onlyAsks reports whether nothing waits but a sequence NAK for what is
// expected now.
func (a *answers) onlyAsks() bool { return a.queue.onlyNAK(a.epsn, a.msn) }

// What follows is for the transmitter.

// first returns the answer that is to be sent first.
func (a *answers) first() *response { return a.queue.at(a.queue.head) }

// of returns what is kept of the request that an answer is to.
func (a *answers) of(e *response) *resource { return a.res.at(e.res) }

// sent says that n packets of the first answer were written, or all of it if it
// is not to a READ. It takes an answer away that is complete.
func (a *answers) sent(n int) {
	e := a.first()
	if e.kind == responseRead {
		e.psn = e.psn.Add(n)
		if e.left -= uint32(n); e.left > 0 {
			return
		}
	}
	if e.kind >= responseRead && !e.part {
		a.of(e).pending = pendingNone
	}
	a.queue.head++
}

// acknowledged says that what was written acknowledges all before and up to
// psn.
func (a *answers) acknowledged(psn rocev2.PSN) {
	if a.unacked && !psn.Before(a.firstUnacked) {
		a.firstUnacked = psn.Next()
		a.unacked = !a.firstUnacked.After(a.lastAck)
	}
}

// fail makes the first answer a NAK, because of a fault in the memory of its
// READ or FLUSH. If it is the answer to the request itself, not to a duplicate,
// it returns false: the connection ends.
func (a *answers) fail(s rocev2.Syndrome) bool {
	e := a.first()
	res := a.of(e)
	if res.pending == pendingFirst {
		return false
	}
	if !e.part {
		res.pending = pendingNone
	}
	*e = response{kind: responseNAK, syndrome: s, psn: e.psn, msn: e.msn}
	return true
}

// persisting says that what the first answer, to a FLUSH, is about is being
// brought to stable storage.
func (a *answers) persisting() { a.first().part = true }

// persisted says what came of that.
func (a *answers) persisted(f ib.Fault) {
	for i := a.queue.head; i != a.queue.tail; i++ {
		e := a.queue.at(i)
		if e.kind != responseFlush || !e.part {
			continue
		}
		e.part = false
		if f != ib.FaultNone {
			e.end = uint32(f)
			return
		}
		e.kind = responseEmpty
		if a.of(e).pending == pendingFirst {
			a.flushing--
		}
		return
	}
}
