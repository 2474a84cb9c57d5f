package engine

import "github.com/gosoftroce/rocev2/transport"

// turns says whose turn it is to send: deficit round robin, in which those come
// first that have just come to have something to send, as the new queues of
// FQ-CoDel (RFC 8290, section 4.2). So an acknowledgement waits for a batch,
// not for a turn of every queue pair that sends bulk. In one round nobody has
// more than one turn; who has used up a part of it may come first again with
// what is left.
type turns struct {
	fresh list
	round list // those without anything to send (QP.idle) only keep their place
}

// A turn is one segmentation run: so many bytes, or so many packets.
const (
	turnBytes   = transport.MaxRunBytes
	minTurnCost = transport.MaxRunBytes / transport.MaxRunSegments // that a packet takes of it
)

// aloneTurns is how many turns at once a queue pair has that is alone: what
// comes meanwhile goes first in any case, and longer bursts cost less.
const aloneTurns = 4

func newTurns() turns {
	return turns{fresh: list{kind: listFresh}, round: list{kind: listRound}}
}

func (t *turns) len() int { return t.fresh.len() + t.round.len() }

// front returns the queue pair whose turn it is, or nil.
func (t *turns) front() *QP {
	if q := t.fresh.front(); q != nil {
		return q
	}
	for q := t.round.front(); q != nil; q = t.round.front() {
		if !q.idle {
			return q
		}
		t.round.pop()
	}
	return nil
}

// push has q come to its turn.
func (t *turns) push(q *QP) {
	switch {
	case q.Pending():
	case !q.links.in[listRound]:
		q.turn = turnBytes
		t.fresh.push(q)
	case int(q.turn) >= q.packetCost():
		t.fresh.push(q)
	default:
		q.turn, q.idle = turnBytes, false
	}
}

// rotate ends the turn of the front, which may have more to send.
func (t *turns) rotate() {
	q := t.pop()
	q.turn, q.idle = turnBytes, false
	if t.fresh.empty() && t.round.empty() {
		q.turn = aloneTurns * turnBytes
	}
	t.round.push(q)
}

// done lets the front go, which has nothing more to send.
func (t *turns) done() {
	q := t.pop()
	if !q.links.in[listRound] && !t.round.empty() {
		q.idle = true
		t.round.push(q)
	}
}

func (t *turns) pop() *QP {
	if t.fresh.empty() {
		return t.round.pop()
	}
	return t.fresh.pop()
}

func (t *turns) remove(q *QP) {
	t.fresh.remove(q)
	t.round.remove(q)
}
