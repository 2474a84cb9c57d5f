package engine

import (
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// groups says which queue pairs are attached to which multicast groups (IBTA
// 10.5.2). A group is there from its first queue pair to its last.
type groups map[netip.Addr][]*QP

// attach puts q into a group. It reports false if q is in it.
func (g *groups) attach(q *QP, group netip.Addr) bool {
	if slices.Contains(q.groups, group) {
		return false
	}
	if *g == nil {
		*g = groups{}
	}
	(*g)[group] = append((*g)[group], q)
	q.groups = append(q.groups, group)
	return true
}

// detach takes q out of a group. It reports false if q is not in it.
func (g groups) detach(q *QP, group netip.Addr) bool {
	i := slices.Index(q.groups, group)
	if i < 0 {
		return false
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	g.remove(q, group)
	return true
}

// detachAll takes q out of all groups.
func (g groups) detachAll(q *QP) {
	for _, group := range q.groups {
		g.remove(q, group)
	}
	q.groups = nil
}

// remove takes q out of a group that it is in.
func (g groups) remove(q *QP, group netip.Addr) {
	members := g[group]
	if len(members) == 1 {
		delete(g, group)
		return
	}
	i := slices.Index(members, q)
	g[group] = slices.Delete(members, i, i+1)
}

// multicast hands the parsed packet, which is for a group, to every queue pair
// that is attached. Each drops what is not for it: another service, state,
// P_Key or Q_Key. No queue pair is attached to the address of a host.
func (in *receiver) multicast(now clock.Time, r *Ready, d *transport.RxPacket) {
	members := in.groups[d.Dst]
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
