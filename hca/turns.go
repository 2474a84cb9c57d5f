package hca

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// turns says whose turn it is to send: deficit round robin, in which those come
// first that have just come to have something to say, as in FQ-CoDel (RFC 8290,
// section 4.2). So an acknowledgement waits for a batch, not for a turn of every
// queue pair that sends bulk. In one round nobody has more than one turn; who has
// used up a part of it may come first again with what is left.
type turns struct {
	fresh qpList
	rest  qpList // the round; those without anything to say (QP.idle) only keep their place
}

// A turn is one segmentation run: so many bytes, or so many packets.
const (
	turnBytes = transport.MaxRunBytes
	turnLeast = transport.MaxRunBytes / transport.MaxRunSegments // that a packet counts
)

// aloneTurns is how many turns at once one has that is alone: what comes between
// goes first in any case, and longer bursts cost less.
const aloneTurns = 4

func newTurns() turns {
	return turns{fresh: qpList{kind: listReady}, rest: qpList{kind: listRest}}
}

// fullPacket is what a packet of the path MTU takes of a turn.
func (q *QP) fullPacket() int { return max(rocev2.BTHLen+q.mtu+rocev2.ICRCLen, turnLeast) }

func (t *turns) len() int { return t.fresh.len() + t.rest.len() }

// front returns the queue pair whose turn it is, or nil.
func (t *turns) front() *QP {
	if q := t.fresh.front(); q != nil {
		return q
	}
	for q := t.rest.front(); q != nil; q = t.rest.front() {
		if !q.idle {
			return q
		}
		t.rest.pop()
	}
	return nil
}

// has reports whether q waits for its turn or has it.
func (t *turns) has(q *QP) bool {
	return q.links[listReady].in || q.links[listRest].in && !q.idle
}

// push has q come to its turn.
func (t *turns) push(q *QP) {
	switch {
	case t.has(q):
	case !q.links[listRest].in:
		q.turn = turnBytes
		t.fresh.push(q)
	case q.turn >= q.fullPacket():
		t.fresh.push(q)
	default:
		q.turn, q.idle = turnBytes, false
	}
}

// rotate ends the turn of the front, which may have more to say.
func (t *turns) rotate() {
	q := t.pop()
	q.turn, q.idle = turnBytes, false
	if t.fresh.empty() && t.rest.empty() {
		q.turn = aloneTurns * turnBytes
	}
	t.rest.push(q)
}

// done lets the front go, which has nothing more to say.
func (t *turns) done() {
	q := t.pop()
	if !q.links[listRest].in && !t.rest.empty() {
		q.idle = true
		t.rest.push(q)
	}
}

func (t *turns) pop() *QP {
	if t.fresh.empty() {
		return t.rest.pop()
	}
	return t.fresh.pop()
}

func (t *turns) remove(q *QP) {
	t.fresh.remove(q)
	t.rest.remove(q)
}

// fill pulls packets from the ready queue pairs in turn until the batch is full
// or nothing is left.
func (s *shard) fill(now clock.Time) {
	for q := s.next(); q != nil; q = s.next() {
		if !s.pull(q, now) {
			return
		}
	}
}

// pull takes packets from q, up to what is left of its turn. It returns false
// when the batch is full.
func (s *shard) pull(q *QP, now clock.Time) bool {
	out := s.writer(q)
	full := q.fullPacket()
	q.core.Allow(q.allowance())
	q.core.DelayAcks(s.delayAcks && !q.local)
	for q.turn >= full {
		room := out.Room()
		if room == nil {
			s.count(q)
			if q.local {
				q.endAdmitted()
				s.ready.rotate() // what it waits for comes at once: the others would have no turn
			}
			return false
		}
		if n := q.core.PollBurst(now, q.turn/full, out); n > 0 {
			q.turn -= n * full
			continue
		}
		if n := q.core.PollTransmit(now, room); n > 0 {
			out.Commit(n)
			q.turn -= max(n+rocev2.ICRCLen, turnLeast)
			continue
		}
		s.count(q)
		allowance := q.allowance()
		if allowance > 0 && q.core.Allowance() <= 0 { // the limit is reached, and there is the share
			q.core.Allow(allowance)
			continue
		}
		q.endAdmitted()
		s.ready.done()
		if allowance == 0 {
			s.stop(q)
		}
		if q.core.AckDelayed() {
			s.delayed.push(q)
			s.lead.unsent.Store(true)
		}
		s.settle(q)
		return true
	}
	s.count(q)
	q.endAdmitted()
	s.fetch(q)
	s.ready.rotate()
	return true
}
