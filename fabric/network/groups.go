package network

import (
	"slices"
	"sort"
)

// parts decides which nodes are in which part, and how many parts there are.
// Nodes with a cable of no delay between them stay together, and so do hosts
// with the switch of their first cable, unless there are fewer switches with
// hosts than parts. What stays together is a group. Where cables have several
// delays only the longest are cut, as long as that leaves each part its share
// of the work.
func (c *Config) parts() (of []uint8, parts int) {
	of = make([]uint8, c.Hosts+len(c.Switches))
	if c.Parts <= 1 {
		return of, 1
	}
	with := c.groups(true, 0).withHosts() >= c.Parts
	g := c.groups(with, 0)
	best := g.share(c.Parts)
	most := best.most() + best.most()/16
	delays := c.delays()
	sort.Search(len(delays), func(i int) bool {
		longer := c.groups(with, delays[i])
		s := longer.share(c.Parts)
		if s.most() > most {
			return true
		}
		g, best = longer, s
		return false
	})
	number := make([]int, c.Parts) // of parts that have a node, + 1
	for node := range of {
		i := best.home[g.of(node)]
		if number[i] == 0 {
			parts++
			number[i] = parts
		}
		of[node] = uint8(number[i] - 1)
	}
	return of, parts
}

// delays returns those of cables that are longer than others, in their order.
func (c *Config) delays() []Time {
	all := make([]Time, 0, len(c.Cables))
	for i := range c.Cables {
		if d := c.Cables[i].Delay; d > 0 {
			all = append(all, d)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[min(1, len(all)):]
}

// groups are nodes that stay together: trees, with the lowest node at the root.
type groups struct {
	up     []int
	load   []int  // of a root: the ends of cables, each at a host as four
	host   []bool // a root has a host
	cables [][2]int
}

// hostLoad is how many times the work of a switch's port that of a host is.
const hostLoad = 4

// groups returns the groups, in which cables with a delay below shorter are not
// cut, either.
func (c *Config) groups(hostsWithSwitches bool, shorter Time) *groups {
	nodes := c.Hosts + len(c.Switches)
	g := &groups{up: make([]int, nodes), load: make([]int, nodes), host: make([]bool, nodes)}
	for i := range g.up {
		g.up[i] = i
	}
	cabled := make([]bool, c.Hosts)
	for _, k := range c.Cables {
		for _, ends := range [][2]int{{k.A, k.B}, {k.B, k.A}} {
			first := ends[0] < c.Hosts && !cabled[ends[0]]
			if first {
				cabled[ends[0]] = true
			}
			if k.Delay == 0 || k.Delay < shorter || hostsWithSwitches && first && ends[1] >= c.Hosts {
				g.join(ends[0], ends[1])
			}
		}
	}
	for _, k := range c.Cables {
		for _, end := range []int{k.A, k.B} {
			if end < c.Hosts {
				g.load[g.of(end)] += hostLoad
			} else {
				g.load[g.of(end)]++
			}
		}
		if a, b := g.of(k.A), g.of(k.B); a != b {
			g.cables = append(g.cables, [2]int{a, b})
		}
	}
	for i := range c.Hosts {
		g.host[g.of(i)] = true
	}
	return g
}

// of returns the root of a node.
func (g *groups) of(node int) int {
	for g.up[node] != node {
		g.up[node] = g.up[g.up[node]]
		node = g.up[node]
	}
	return node
}

func (g *groups) join(a, b int) {
	a, b = g.of(a), g.of(b)
	g.up[max(a, b)] = min(a, b)
}

func (g *groups) withHosts() (n int) {
	for i := range g.host {
		if g.host[i] && g.of(i) == i {
			n++
		}
	}
	return n
}

// sharing is which part each group is in.
type sharing struct {
	g    *groups
	far  [][]int // by root: those at the other ends of its cables
	home []int   // by root; noPart: not known yet
	full []int   // by part: the load
	ends []int   // by part: of the cables of a group that is looked at
}

const noPart = -1

// share shares out the groups. Those with hosts keep their order, so that
// neighbours are in one part: each part gets its share of the load. Then come
// those that have cables to them, and so on: each goes to the part to which it
// has most cables, if that is not full, else where there is least to do.
func (g *groups) share(parts int) *sharing {
	s := &sharing{g: g, far: make([][]int, len(g.up)), home: make([]int, len(g.up)), full: make([]int, parts), ends: make([]int, parts)}
	for _, k := range g.cables {
		s.far[k[0]] = append(s.far[k[0]], k[1])
		s.far[k[1]] = append(s.far[k[1]], k[0])
	}
	hosts, all := 0, 0
	for i := range g.up {
		s.home[i] = noPart
		all += g.load[i]
		if g.host[i] {
			hosts += g.load[i]
		}
	}
	var next []int // groups whose neighbours come next
	before := 0
	for i := range g.up {
		if g.of(i) == i && g.host[i] {
			s.put(i, min((2*before+g.load[i])*parts/max(2*hosts, 1), parts-1))
			before += g.load[i]
			next = append(next, i)
		}
	}
	room := (all+parts-1)/parts + all/(32*parts)
	for len(next) > 0 {
		i := next[0]
		next = next[1:]
		for _, j := range s.far[i] {
			if s.home[j] == noPart {
				s.put(j, s.best(j, room))
				next = append(next, j)
			}
		}
	}
	for i := range g.up {
		if g.of(i) == i && s.home[i] == noPart {
			s.put(i, s.best(i, room))
		}
	}
	s.improve(max(room, s.most()))
	return s
}

func (s *sharing) put(group, part int) {
	if old := s.home[group]; old != noPart {
		s.full[old] -= s.g.load[group]
	}
	s.home[group] = part
	s.full[part] += s.g.load[group]
}

// most returns the load of the part that has most to do.
func (s *sharing) most() int { return slices.Max(s.full) }

// look counts in ends the cables of a group to each part.
func (s *sharing) look(group int) {
	clear(s.ends)
	for _, j := range s.far[group] {
		if p := s.home[j]; p != noPart {
			s.ends[p]++
		}
	}
}

// best returns the part for a group that is in none yet.
func (s *sharing) best(group, room int) int {
	s.look(group)
	best, least := noPart, 0
	for p := range s.full {
		if s.full[p] < s.full[least] {
			least = p
		}
		if s.full[p]+s.g.load[group] > room {
			continue
		}
		if best == noPart || s.ends[p] > s.ends[best] || s.ends[p] == s.ends[best] && s.full[p] < s.full[best] {
			best = p
		}
	}
	if best == noPart {
		return least
	}
	return best
}

// improve moves groups to where they have more cables than where they are, if
// there is room, a few times over all.
func (s *sharing) improve(room int) {
	for range 4 {
		moved := false
		for i := range s.home {
			if s.home[i] == noPart {
				continue // no root
			}
			s.look(i)
			to := s.home[i]
			for p := range s.full {
				if s.ends[p] > s.ends[to] && s.full[p]+s.g.load[i] <= room {
					to = p
				}
			}
			if to != s.home[i] {
				s.put(i, to)
				moved = true
			}
		}
		if !moved {
			return
		}
	}
}
