package traffic

import (
	"fmt"
	"math/bits"
)

// Step is what a rank does in one round of a collective. What it sends is what
// its vector has when the round begins. It begins the next round when what it
// receives has arrived.
type Step struct {
	To   int32 // the rank that it sends to, or -1
	From int32 // the rank that it receives from, or -1
	Send Span
	Recv Span
	// Reduce says that what arrives is added to the vector. Otherwise it
	// takes the place of what was there.
	Reduce bool
}

// Span is a part of a vector, in bytes.
type Span struct {
	Offset, Bytes int64
}

// Collective is the plan of a collective operation. Ranks are numbered from 0.
// At the end of an all-reduce every rank has the sum of all vectors. What other
// collectives come to is said by the functions that return them.
type Collective interface {
	Ranks() int
	Rounds() int
	// Step returns what a rank does in a round. A span may have 0 bytes
	// when the vector is smaller than the number of ranks: it is sent all
	// the same.
	Step(rank, round int) Step
}

var idle = Step{To: -1, From: -1}

// plan is what all collectives have.
type plan struct {
	ranks int
	bytes int64
}

func (p plan) Ranks() int { return p.ranks }

func (p plan) all() Span { return Span{Bytes: p.bytes} }

// spans returns the parts from, from+1 … to-1 of the n of the vector.
func (p plan) spans(from, to, n int) Span {
	begin := p.bytes * int64(from) / int64(n)
	return Span{Offset: begin, Bytes: p.bytes*int64(to)/int64(n) - begin}
}

func newPlan(ranks int, bytes int64) (plan, error) {
	if ranks < 1 || ranks > maxHosts {
		return plan{}, fmt.Errorf("traffic: a collective of %d ranks; it takes 1 to %d", ranks, maxHosts)
	}
	if err := checkBytes(bytes); err != nil {
		return plan{}, err
	}
	return plan{ranks, bytes}, nil
}

// Ring returns the all-reduce in a ring: 2(n-1) rounds, in each of which every
// rank sends one n-th of the vector to the next one.
func Ring(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return ring{p}, nil
}

type ring struct{ plan }

func (c ring) Rounds() int { return 2 * (c.ranks - 1) }

func (c ring) Step(rank, round int) Step {
	if back := round - (c.ranks - 1); back >= 0 {
		return c.around(rank, rank+1-back, false)
	}
	return c.around(rank, rank-round, true)
}

// Tree returns the all-reduce by a binomial tree: the whole vector goes up to
// rank 0 and down again, 2*ceil(log2 n) rounds.
func Tree(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return tree{p}, nil
}

type tree struct{ plan }

func (c tree) height() int { return bits.Len(uint(c.ranks - 1)) }

func (c tree) Rounds() int { return 2 * c.height() }

func (c tree) Step(rank, round int) Step {
	up := round < c.height()
	level := round
	if !up {
		level = c.Rounds() - 1 - round
	}
	bit := 1 << level
	if rank&(bit-1) != 0 {
		return idle
	}
	s, child := idle, rank&bit != 0 // of the two of a pair
	other := rank ^ bit
	switch {
	case other >= c.ranks:
	case child == up:
		s.To, s.Send = int32(other), c.all()
	default:
		s.From, s.Recv, s.Reduce = int32(other), c.all(), up
	}
	return s
}

// HalvingDoubling returns the all-reduce of Rabenseifner: partners exchange
// halves, then quarters and so on, until each rank has the sum of its n-th of
// the vector, and then the same back: 2*log2(n) rounds. With a number of ranks
// that is no power of two, those beyond it hand their vectors to others in a
// round before, and get the sum in a round after.
func HalvingDoubling(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return halving{plan: p, height: bits.Len(uint(ranks)) - 1}, nil
}

type halving struct {
	plan
	height int // log2 of the ranks that exchange
}

func (c halving) Rounds() int {
	if c.beyond() > 0 {
		return 2*c.height + 2
	}
	return 2 * c.height
}

// beyond returns how many ranks hand their vectors to others.
func (c halving) beyond() int { return c.ranks - 1<<c.height }

func (c halving) Step(rank, round int) Step {
	if c.beyond() > 0 {
		switch round {
		case 0:
			return c.fold(rank, true)
		case c.Rounds() - 1:
			return c.fold(rank, false)
		}
		round--
	}
	if rank >= 1<<c.height {
		return idle
	}
	halve := round < c.height
	level := round // how often the vector has been halved before
	if !halve {
		level = 2*c.height - 1 - round
	}
	// The ranks that share the first level bits have one part of the vector
	// in common. The next bit says which half of it a rank keeps.
	n := 1 << c.height
	size := n >> level
	begin := rank &^ (size - 1)
	low, high := c.spans(begin, begin+size/2, n), c.spans(begin+size/2, begin+size, n)
	if rank&(size/2) != 0 {
		low, high = high, low // what it keeps, what its partner keeps
	}
	other := int32(rank ^ size/2)
	if halve {
		return Step{To: other, From: other, Send: high, Recv: low, Reduce: true}
	}
	return Step{To: other, From: other, Send: low, Recv: high}
}

// fold is the round before and the one after.
func (c halving) fold(rank int, before bool) Step {
	n := 1 << c.height
	s := idle
	switch {
	case rank >= n && before:
		s.To, s.Send = int32(rank-n), c.all()
	case rank >= n:
		s.From, s.Recv = int32(rank-n), c.all()
	case rank < c.beyond() && before:
		s.From, s.Recv, s.Reduce = int32(rank+n), c.all(), true
	case rank < c.beyond():
		s.To, s.Send = int32(rank+n), c.all()
	}
	return s
}
