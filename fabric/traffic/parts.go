package traffic

import (
	"fmt"
	"math/bits"
)

// AllGather returns the all-gather in a ring. Rank i has the i-th part of the
// vector, of n. In n-1 rounds each rank passes on what it has got last, and at
// the end all have the whole vector. bytes is that of all parts.
func AllGather(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return gather{p}, nil
}

type gather struct{ plan }

func (c gather) Rounds() int { return c.ranks - 1 }

func (c gather) Step(rank, round int) Step {
	return c.around(rank, rank-round, false)
}

// around is a step in a ring: a rank sends a part, and receives the one before.
func (p plan) around(rank, part int, reduce bool) Step {
	n := p.ranks
	part = (part%n + n) % n
	before := (part + n - 1) % n
	return Step{
		To: int32((rank + 1) % n), From: int32((rank + n - 1) % n),
		Send: p.spans(part, part+1, n), Recv: p.spans(before, before+1, n),
		Reduce: reduce,
	}
}

// ReduceScatter returns the reduce-scatter in a ring, n-1 rounds. At the end
// rank i has the sum of the part i+1 of n, and the last rank that of part 0.
func ReduceScatter(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return scatter{p}, nil
}

type scatter struct{ plan }

func (c scatter) Rounds() int { return c.ranks - 1 }

func (c scatter) Step(rank, round int) Step {
	return c.around(rank, rank-round, true)
}

// Broadcast returns the broadcast of rank 0 by a binomial tree, ceil(log2 n)
// rounds: at the end all ranks have the vector of rank 0.
func Broadcast(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return half{tree{p}, true}, nil
}

// Reduce returns the sum of all vectors at rank 0 by a binomial tree,
// ceil(log2 n) rounds.
func Reduce(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return half{tree{p}, false}, nil
}

// half is the way up of an all-reduce by a tree, or the way down.
type half struct {
	tree
	down bool
}

func (c half) Rounds() int { return c.height() }

func (c half) Step(rank, round int) Step {
	if c.down {
		round += c.height()
	}
	return c.tree.Step(rank, round)
}

// Pairwise returns the all-to-all in n-1 rounds: in each, every rank sends to
// one other rank and receives from one, first its neighbours, then theirs. The
// vector of a rank has n parts, one for each rank; Send is a place in it, and
// Recv one in the vector that the rank gets.
func Pairwise(ranks int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	return pairwise{p}, nil
}

type pairwise struct{ plan }

func (c pairwise) Rounds() int { return c.ranks - 1 }

func (c pairwise) Step(rank, round int) Step {
	to, from := opposite(rank, round, c.ranks)
	return Step{To: int32(to), From: int32(from), Send: c.spans(to, to+1, c.ranks), Recv: c.spans(from, from+1, c.ranks)}
}

// opposite returns which ranks a rank sends to and receives from in a round of
// an all-to-all.
func opposite(rank, round, n int) (to, from int) {
	return (rank + round + 1) % n, (rank + n - round - 1) % n
}

// mostMatrix is the most ranks whose messages are told one by one.
const mostMatrix = 4096

// PairwiseOf is Pairwise where row i says how many bytes rank i has for each
// rank. What is 0 is not sent, and what a rank has for itself neither.
func PairwiseOf(bytes [][]int64) (Collective, error) {
	n := len(bytes)
	if n < 1 || n > mostMatrix {
		return nil, fmt.Errorf("traffic: an all-to-all of %d ranks whose messages are told; it takes 1 to %d", n, mostMatrix)
	}
	for i, row := range bytes {
		if len(row) != n {
			return nil, fmt.Errorf("traffic: rank %d of an all-to-all of %d ranks has bytes for %d", i, n, len(row))
		}
		for _, b := range row {
			if b < 0 || b > maxBytes {
				return nil, fmt.Errorf("traffic: rank %d of an all-to-all has %d bytes for one rank; it takes 0 to %d", i, b, int64(maxBytes))
			}
		}
	}
	return matrix{bytes}, nil
}

type matrix struct{ bytes [][]int64 }

func (c matrix) Ranks() int { return len(c.bytes) }

func (c matrix) Rounds() int { return len(c.bytes) - 1 }

func (c matrix) Step(rank, round int) Step {
	to, from := opposite(rank, round, len(c.bytes))
	s := idle
	if n := c.bytes[rank][to]; n > 0 {
		s.To, s.Send = int32(to), Span{Bytes: n}
	}
	if n := c.bytes[from][rank]; n > 0 {
		s.From, s.Recv = int32(from), Span{Bytes: n}
	}
	return s
}

// Hierarchical returns the all-reduce of machines with several ranks each,
// which follow each other: a reduce-scatter in a ring within each machine,
// all-reduces in rings across them of the part that each rank has then, and an
// all-gather within. That is 2(g-1) + 2(n/g-1) rounds for n ranks, g a machine.
// g divides n.
func Hierarchical(ranks, group int, bytes int64) (Collective, error) {
	p, err := newPlan(ranks, bytes)
	if err != nil {
		return nil, err
	}
	if group < 1 || ranks%group != 0 {
		return nil, fmt.Errorf("traffic: an all-reduce of %d ranks in groups of %d; it takes groups that are all full", ranks, group)
	}
	return hierarchical{plan: p, group: group}, nil
}

type hierarchical struct {
	plan
	group int
}

func (c hierarchical) Rounds() int { return 2*(c.group-1) + 2*(c.ranks/c.group-1) }

func (c hierarchical) Step(rank, round int) Step {
	g, m := c.group, c.ranks/c.group
	machine, local := rank/g, rank%g
	within := plan{g, c.bytes}
	var s Step
	switch across := round - (g - 1); {
	case across < 0:
		s = within.around(local, local-round, true)
	case across >= 2*(m-1):
		s = within.around(local, local+1-(across-2*(m-1)), false)
	default:
		part := within.spans((local+1)%g, (local+1)%g+1, g)
		s = ring{plan{m, part.Bytes}}.Step(machine, across)
		s.Send.Offset += part.Offset
		s.Recv.Offset += part.Offset
		s.To, s.From = s.To*int32(g)+int32(local), s.From*int32(g)+int32(local)
		return s
	}
	s.To, s.From = s.To+int32(machine*g), s.From+int32(machine*g)
	return s
}

// Barrier returns rounds of messages without bytes, after which each rank knows
// that all have come to the first: ceil(log2 n), in each of which a rank tells
// the one twice as far as before (Hensgen, Finkel, Manber 1988).
func Barrier(ranks int) (Collective, error) {
	p, err := newPlan(ranks, 1)
	if err != nil {
		return nil, err
	}
	return barrier{p}, nil
}

type barrier struct{ plan }

func (c barrier) Rounds() int { return bits.Len(uint(c.ranks - 1)) }

func (c barrier) Step(rank, round int) Step {
	far := 1 << round
	return Step{To: int32((rank + far) % c.ranks), From: int32((rank + c.ranks - far) % c.ranks)}
}
