package topology

import (
	"cmp"
	"slices"
)

// UpDown returns tables whose ways climb first and then descend, without the
// links that have failed. A packet that has come down never climbs again. So
// the buffers on the ways never wait for each other in a circle, whatever has
// failed (Autonet's up*/down* routing, Schroeder et al. 1991).
//
// A switch of a higher tier is above one of a lower tier; within a tier the
// one with the lower number is above. In a Clos network without failures the
// ways are those of Shortest. Where failures have left two switches without a
// common switch above them, some switches are taken to be lower than their
// tier, until every two switches that are connected have one. So whatever can
// be reached from a host is reached, sometimes by a longer way. A switch that
// has no hosts, and that no way passes, may have no way.
func (g *Graph) UpDown(failed LinkSet) *Tables {
	t := newTables(g, failed)
	f := g.fabric(failed)
	u := upDown{t: t, f: f, in: interner{t: t, sets: map[string]uint32{}}}
	u.order = newRanking(g, failed, t.leaf).order()
	u.rank = make([]int32, f.size())
	for i, s := range u.order {
		u.rank[s] = int32(i)
	}
	u.below = make([]int32, f.size())
	u.cost = make([]int32, f.size())
	u.fromAbove = make([]bool, f.size())
	for group, leaf := range t.leaf {
		u.fill(group, leaf-g.hosts)
	}
	return t
}

// upDown is what the computation of such tables works with. Switches are
// numbered from 0.
type upDown struct {
	t     *Tables
	f     *fabric
	in    interner
	order []int32 // from the top down
	rank  []int32 // where a switch stands in order: a low rank is high up

	// Of the group that is being filled in:
	below     []int32 // hops of the shortest way that only descends
	cost      []int32 // hops of the ways that were chosen
	fromAbove []bool  // a switch above sends packets here
	queue     []int32
	ports     []uint16
}

// above reports whether an edge of s climbs.
func (u *upDown) above(s int32, e edge) bool { return u.rank[e.to] < u.rank[s] }

// descents computes how far each switch is from the leaf when a packet may
// only descend.
func (u *upDown) descents(leaf int32) {
	for s := range u.below {
		u.below[s] = far
	}
	u.below[leaf] = 0
	u.queue = append(u.queue[:0], leaf)
	for i := 0; i < len(u.queue); i++ {
		s := u.queue[i]
		for _, e := range u.f.of(s) {
			if u.above(s, e) && u.below[e.to] == far {
				u.below[e.to] = u.below[s] + 1
				u.queue = append(u.queue, e.to)
			}
		}
	}
}

// fill chooses the ways to the hosts of one leaf. It goes from the top down,
// so that a switch knows whether one above has chosen it. Such a switch must
// descend. Any other takes the shortest of both kinds.
func (u *upDown) fill(group int, leaf int32) {
	u.descents(leaf)
	clear(u.fromAbove)
	groups := len(u.t.leaf)
	for _, s := range u.order {
		down, up := u.below[s], far
		if !u.fromAbove[s] {
			for _, e := range u.f.of(s) {
				if u.above(s, e) {
					up = min(up, u.cost[e.to]+1)
				}
			}
		}
		u.cost[s] = min(down, up, far)
		if s == leaf || u.cost[s] == far {
			continue
		}
		u.ports = u.ports[:0]
		for _, e := range u.f.of(s) {
			switch {
			case u.above(s, e):
				if up == u.cost[s] && u.cost[e.to]+1 == up {
					u.ports = append(u.ports, e.port)
				}
			case down == u.cost[s] && u.below[e.to] == down-1:
				u.ports = append(u.ports, e.port)
				u.fromAbove[e.to] = true
			}
		}
		u.t.next[int(s)*groups+group] = u.in.set(u.ports)
	}
}

// ranking finds an order of the switches by which every two that have hosts
// and are connected have a common switch above them.
type ranking struct {
	f      *fabric
	leaves []int32 // the switches that have hosts
	list   []int32 // from the top down
	rank   []int32
	part   []int32 // of each switch: the connected part that it is in
	root   []int32 // of each part: the switch above all others, once there must be one; or -1
	// covered switches are the root of their part or can climb to it.
	covered []bool
}

// newRanking ranks the switches without the links of bonds: no way leads
// through one. The switches that those are attached to stand for them.
func newRanking(g *Graph, failed LinkSet, leaves []int32) *ranking {
	f := g.without(failed, g.bonds)
	r := &ranking{f: f, rank: make([]int32, f.size()), covered: make([]bool, f.size())}
	known := make([]bool, f.size())
	add := func(s int32) {
		if !known[s] {
			known[s] = true
			r.leaves = append(r.leaves, s)
		}
	}
	for _, l := range leaves {
		add(l - g.hosts)
		if !g.IsBond(l) {
			continue
		}
		for _, p := range g.Ports(l) {
			if !g.IsHost(p.Peer) && !failed.Has(p.Link) {
				add(p.Peer - g.hosts)
			}
		}
	}
	for s := range f.size() {
		r.list = append(r.list, s)
	}
	slices.SortStableFunc(r.list, func(a, b int32) int {
		return cmp.Compare(g.tiers[b+g.hosts], g.tiers[a+g.hosts])
	})
	r.index()
	r.split()
	return r
}

func (r *ranking) index() {
	for i, s := range r.list {
		r.rank[s] = int32(i)
	}
}

// split finds the connected parts.
func (r *ranking) split() {
	r.part = make([]int32, r.f.size())
	for s := range r.part {
		r.part[s] = -1
	}
	var queue []int32
	for s := range r.f.size() {
		if r.part[s] >= 0 {
			continue
		}
		n := int32(len(r.root))
		r.root = append(r.root, -1)
		r.part[s] = n
		queue = append(queue[:0], s)
		for i := 0; i < len(queue); i++ {
			for _, e := range r.f.of(queue[i]) {
				if r.part[e.to] < 0 {
					r.part[e.to] = n
					queue = append(queue, e.to)
				}
			}
		}
	}
}

// order returns the switches from the top down. Each round covers one more
// switch, and two that are covered have the root in common, so it ends.
func (r *ranking) order() []int32 {
	for {
		tops := r.tops()
		a, b, ok := r.apart(tops)
		if !ok {
			return r.list
		}
		part := r.part[a]
		if r.root[part] < 0 {
			r.root[part] = r.widest(part, tops)
		}
		r.cover(part)
		if r.covered[a] {
			a = b
		}
		for _, s := range r.wayToCovered(a) {
			r.lower(s.from, s.to)
		}
	}
}

// tops computes for each switch which switches without any above them it can
// climb to. Those are numbered by rank.
func (r *ranking) tops() *bitsets {
	count := 0
	for _, s := range r.list {
		if !r.climbs(s) {
			count++
		}
	}
	sets := newBitsets(int(r.f.size()), count)
	next := 0
	for _, s := range r.list {
		set := sets.of(s)
		if !r.climbs(s) {
			set[next/64] |= 1 << (next % 64)
			next++
			continue
		}
		for _, e := range r.f.of(s) {
			if r.rank[e.to] < r.rank[s] {
				merge(set, sets.of(e.to))
			}
		}
	}
	return sets
}

// climbs reports whether there is a switch above s.
func (r *ranking) climbs(s int32) bool {
	return slices.ContainsFunc(r.f.of(s), func(e edge) bool { return r.rank[e.to] < r.rank[s] })
}

// apart returns two leaves that are connected and have no switch above both.
// Leaves with equal sets of tops are looked at once.
func (r *ranking) apart(tops *bitsets) (a, b int32, ok bool) {
	var kinds []int32
	for _, l := range r.leaves {
		set := tops.of(l)
		known := false
		for _, k := range kinds {
			other := tops.of(k)
			if slices.Equal(set, other) {
				known = true
				break
			}
			if r.part[k] == r.part[l] && !overlap(set, other) {
				return k, l, true
			}
		}
		if !known {
			kinds = append(kinds, l)
		}
	}
	return 0, 0, false
}

// widest returns the top of a part that most leaves can climb to.
func (r *ranking) widest(part int32, tops *bitsets) int32 {
	best, most, next := int32(-1), -1, 0
	for _, s := range r.list {
		if r.climbs(s) {
			continue
		}
		if r.part[s] == part {
			reach := 0
			for _, l := range r.leaves {
				reach += int(tops.of(l)[next/64] >> (next % 64) & 1)
			}
			if reach > most {
				best, most = s, reach
			}
		}
		next++
	}
	return best
}

// cover marks what can climb to the root of a part.
func (r *ranking) cover(part int32) {
	for _, s := range r.list {
		if r.part[s] != part {
			continue
		}
		r.covered[s] = s == r.root[part] || slices.ContainsFunc(r.f.of(s), func(e edge) bool {
			return r.rank[e.to] < r.rank[s] && r.covered[e.to]
		})
	}
}

type step struct{ from, to int32 }

// wayToCovered returns a shortest way from the covered switches to one of the
// same part that is not covered.
func (r *ranking) wayToCovered(target int32) []step {
	before := make([]int32, r.f.size())
	for s := range before {
		before[s] = -1
	}
	before[target] = target
	queue := []int32{target}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		if r.covered[s] {
			var way []step
			for ; s != target; s = before[s] {
				way = append(way, step{s, before[s]})
			}
			return way
		}
		for _, e := range r.f.of(s) {
			if before[e.to] < 0 {
				before[e.to] = s
				queue = append(queue, e.to)
			}
		}
	}
	return nil
}

// lower puts a switch just below its neighbour, which is covered, if it stands
// above it. What was covered stays so: none of it climbs by a switch that was
// not covered.
func (r *ranking) lower(neighbour, s int32) {
	if r.rank[s] > r.rank[neighbour] {
		return
	}
	from, to := r.rank[s], r.rank[neighbour]
	copy(r.list[from:to], r.list[from+1:to+1])
	r.list[to] = s
	r.index()
}

// bitsets are sets of small numbers, one for each switch.
type bitsets struct {
	words int
	bits  []uint64
}

func newBitsets(sets, size int) *bitsets {
	words := (size + 63) / 64
	return &bitsets{words, make([]uint64, sets*words)}
}

func (b *bitsets) of(i int32) []uint64 { return b.bits[int(i)*b.words : (int(i)+1)*b.words] }

func merge(to, from []uint64) {
	for i, w := range from {
		to[i] |= w
	}
}

func overlap(a, b []uint64) bool {
	for i, w := range a {
		if w&b[i] != 0 {
			return true
		}
	}
	return false
}
