package engine

import (
	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/transport"
)

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
	fresh list.List[QP]
	round list.List[QP] // those without anything to send (QP.idle) only keep their place
}

// A turn is one segmentation run, which is limited in bytes and in packets, or
// what Config.Turn says.
const (
	mostTurn    = transport.MaxRunBytes
	minTurnCost = transport.MaxRunBytes / transport.MaxRunSegments // that a packet takes of it
)

// turn returns the bytes of a turn.
func (c *Config) turn() int32 {
	if c.Turn == 0 {
		return mostTurn
	}
	return int32(min(max(c.Turn, 0), mostTurn))
}

// aloneTurns is how many turns at once a queue pair has that is alone: what
// comes meanwhile goes first in any case, and longer bursts cost less.
const aloneTurns = 4

// of returns the turns of a class.
func (t *turns) of(class uint8) *classTurns {
	if class == 0 {
		return &t.lowest
	}
	return t.higher(class)
}

func (t *turns) higher(class uint8) *classTurns {
	switch {
	case t.above == nil: // as long as all may become: lists do not move
		t.above = make([]classTurns, class, NumClasses-1)
	case len(t.above) < int(class):
		t.above = t.above[:class]
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
	if q.fresh.In() {
		c.fresh.Remove(&q.fresh)
	}
	if q.round.In() {
		c.round.Remove(&q.round)
	}
	c.settle()
}

func (t *classTurns) len() int { return t.fresh.Len() + t.round.Len() }

// push has q come to its turn.
func (t *classTurns) push(q *QP) {
	q.quiet = false
	switch {
	case q.Pending():
	case !q.round.In():
		q.turn = int32(q.wholeTurn())
		t.fresh.PushBack(&q.fresh)
	case int(q.turn) >= q.packetCost():
		t.fresh.PushBack(&q.fresh)
	default:
		q.turn, q.idle = int32(q.wholeTurn()), false
	}
}

// front returns the queue pair whose turn it is, or nil.
func (t *classTurns) front() *QP {
	if q := t.fresh.Front(); q != nil {
		return q
	}
	return t.round.Front() // not idle, see settle
}

// rotate ends the turn of the front, which may have more to send.
func (t *classTurns) rotate() {
	q := t.pop()
	q.turn, q.idle = int32(q.wholeTurn()), false
	if t.len() == 0 {
		q.turn *= aloneTurns
	}
	if !q.round.In() {
		t.round.PushBack(&q.round)
	}
	t.settle()
}

// done lets the front go, which has nothing more to send. In the round it keeps
// its place.
func (t *classTurns) done() {
	q := t.pop()
	if t.round.Len() == 0 {
		return
	}
	if !q.round.In() {
		q.idle = true
		t.round.PushBack(&q.round)
	}
	t.settle()
}

func (t *classTurns) pop() *QP {
	if t.fresh.Len() == 0 {
		return t.round.PopFront()
	}
	return t.fresh.PopFront()
}

// settle ends the round of idle queue pairs whose place has come up: when none
// is fresh, the first of the round has something to send.
func (t *classTurns) settle() {
	for t.fresh.Len() == 0 && t.round.Len() > 0 && t.round.Front().idle {
		t.round.PopFront()
	}
}
