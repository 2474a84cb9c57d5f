package engine

import "github.com/gosoftroce/rocev2/transport"

// turns says whose turn it is to send. Each class has turns of its own.
type turns struct {
	lowest classTurns   // of class 0, which has all unless Config.Class says more
	above  []classTurns // of class 1 and up
}

// classTurns are those of a class: deficit round robin, in which the queue
// pairs come first that have just come to have something to send, like the new
// queues of FQ-CoDel (RFC 8290, section 4.2). So an acknowledgement waits for a
// batch, not for a turn of every queue pair that sends bulk. In one round no
// queue pair has more than one turn; one that has used up a part of it may come
// first again with what is left.
type classTurns struct {
	fresh list
	round list // those without anything to send (QP.idle) only keep their place
}

// A turn is one segmentation run, which is limited in bytes and in packets.
const (
	turnBytes   = transport.MaxRunBytes
	minTurnCost = transport.MaxRunBytes / transport.MaxRunSegments // that a packet takes of it
)

// aloneTurns is how many turns at once a queue pair has that is alone: what
// comes meanwhile goes first in any case, and longer bursts cost less.
const aloneTurns = 4

func newTurns() turns { return turns{lowest: newClassTurns()} }

func newClassTurns() classTurns {
	return classTurns{fresh: list{kind: listFresh}, round: list{kind: listRound}}
}

// of returns the turns of a class.
func (t *turns) of(class uint8) *classTurns {
	if class == 0 {
		return &t.lowest
	}
	return t.higher(class)
}

func (t *turns) higher(class uint8) *classTurns {
	if n := len(t.above); n < int(class) {
		t.above = append(make([]classTurns, 0, class), t.above...)
		for range int(class) - n {
			t.above = append(t.above, newClassTurns())
		}
	}
	return &t.above[class-1]
}

// front returns the queue pair whose turn it is, of the highest of some classes
// that has one; nil if none has.
func (t *turns) front(classes Classes) *QP {
	for i := len(t.above); i > 0; i-- {
		if classes.Has(uint8(i)) {
			if q := t.above[i-1].front(); q != nil {
				return q
			}
		}
	}
	if classes&1 == 0 {
		return nil
	}
	return t.lowest.front()
}

// ready returns the classes in which a queue pair has its turn.
func (t *turns) ready() (c Classes) {
	if t.lowest.front() != nil {
		c = 1
	}
	for i := range t.above {
		if t.above[i].front() != nil {
			c |= 1 << (i + 1)
		}
	}
	return c
}

func (t *turns) len() int {
	n := t.lowest.len()
	for i := range t.above {
		n += t.above[i].len()
	}
	return n
}

// push has q come to its turn.
func (t *turns) push(q *QP) {
	if q.class == 0 {
		t.lowest.push(q)
	} else {
		t.higher(q.class).push(q)
	}
}

// count records what q has in flight now. It may be held back no longer.
func (t *turns) count(q *QP) {
	if q.count(q.core.InFlight()) {
		t.push(q)
	}
}

// remove takes q out.
func (t *turns) remove(q *QP) {
	c := t.of(q.class)
	c.fresh.remove(q)
	c.round.remove(q)
	c.settle()
}

func (t *classTurns) len() int { return t.fresh.len() + t.round.len() }

// push has q come to its turn.
func (t *classTurns) push(q *QP) {
	q.quiet = false
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

// front returns the queue pair whose turn it is, or nil.
func (t *classTurns) front() *QP {
	if t.fresh.head != nil {
		return t.fresh.head
	}
	return t.round.head // not idle, see settle
}

// rotate ends the turn of the front, which may have more to send.
func (t *classTurns) rotate() {
	q := t.pop()
	q.turn, q.idle = turnBytes, false
	if t.fresh.empty() && t.round.empty() {
		q.turn = aloneTurns * turnBytes
	}
	t.round.push(q)
	t.settle()
}

// done lets the front go, which has nothing more to send. In the round it keeps
// its place.
func (t *classTurns) done() {
	q := t.pop()
	if t.round.head == nil {
		return
	}
	if !q.links.in[listRound] {
		q.idle = true
		t.round.push(q)
	}
	t.settle()
}

func (t *classTurns) pop() *QP {
	if t.fresh.head == nil {
		return t.round.pop()
	}
	return t.fresh.pop()
}

// settle ends the round of idle queue pairs whose place has come up: when none
// is fresh, the first of the round has something to send.
func (t *classTurns) settle() {
	for t.fresh.head == nil && t.round.head != nil && t.round.head.idle {
		t.round.pop()
	}
}
