package engine

import (
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// groups says which queue pairs are attached to which multicast groups (IBTA
// 10.5.2). A group is there from its first queue pair to its last. Most queue
// pairs are in none, so they have no field for it.
type groups struct {
	members map[netip.Addr][]*QP
	of      map[*QP][]netip.Addr
}

// attach puts q into a group. It reports false if q is in it.
func (g *groups) attach(q *QP, group netip.Addr) bool {
	if slices.Contains(g.of[q], group) {
		return false
	}
	if g.of == nil {
		g.members, g.of = map[netip.Addr][]*QP{}, map[*QP][]netip.Addr{}
	}
	g.members[group] = append(g.members[group], q)
	g.of[q] = append(g.of[q], group)
	return true
}

// detach takes q out of a group. It reports false if q is not in it.
func (g *groups) detach(q *QP, group netip.Addr) bool {
	all := g.of[q]
	i := slices.Index(all, group)
	if i < 0 {
		return false
	}
	if len(all) == 1 {
		delete(g.of, q)
	} else {
		g.of[q] = slices.Delete(all, i, i+1)
	}
	g.remove(q, group)
	return true
}

// detachAll takes q out of all groups.
func (g *groups) detachAll(q *QP) {
	for _, group := range g.of[q] {
		g.remove(q, group)
	}
	delete(g.of, q)
}

// remove takes q out of the members of a group, of which it is one.
func (g *groups) remove(q *QP, group netip.Addr) {
	members := g.members[group]
	if len(members) == 1 {
		delete(g.members, group)
		return
	}
	i := slices.Index(members, q)
	g.members[group] = slices.Delete(members, i, i+1)
}

// multicast hands the parsed packet, which is for a group, to every queue pair
// that is attached. Each drops what is not for it: another service, state,
// P_Key or Q_Key. No queue pair is attached to the address of a host.
func (in *receiver) multicast(now clock.Time, r *Ready, d *transport.RxPacket) {
	members := in.groups.members[d.Dst]
	switch {
	case in.cfg.OwnShards > 1:
		in.grouped = append(in.grouped, *d) // it may be for the others too
	case len(members) == 0:
		in.counters.Device[DropGroup]++
	}
	for _, q := range members {
		in.deliver(now, r, d, q)
	}
}
