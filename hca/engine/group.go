package engine

import (
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// groups says which queue pairs are attached to which multicast groups (IBTA
// 10.5.2). A group is there from its first queue pair to its last.
type groups map[netip.Addr][]*QP

// Attach has q, a UD queue pair of the engine, receive the datagrams that are
// sent to a group: an address as packets have it, without a zone. It reports
// false if q is attached already. The link must have joined the group.
func (e *Engine) Attach(q *QP, group netip.Addr) bool {
	if slices.Contains(q.groups, group) {
		return false
	}
	if e.groups == nil {
		e.groups = groups{}
	}
	e.groups[group] = append(e.groups[group], q)
	q.groups = append(q.groups, group)
	return true
}

// Detach ends what Attach has begun. It reports false if q is not attached.
func (e *Engine) Detach(q *QP, group netip.Addr) bool {
	i := slices.Index(q.groups, group)
	if i < 0 {
		return false
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	e.groups.remove(q, group)
	return true
}

// Attached returns how many queue pairs are attached to a group.
func (e *Engine) Attached(group netip.Addr) int { return len(e.groups[group]) }

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

// detachAll takes q out of all groups.
func (e *Engine) detachAll(q *QP) {
	for _, group := range q.groups {
		e.groups.remove(q, group)
	}
	q.groups = nil
}

// multicast hands the parsed packet, which is for a group, to every queue pair
// that is attached. Each drops what is not for it: another service, state,
// P_Key or Q_Key. No queue pair is attached to the address of a host.
func (e *Engine) multicast(now clock.Time, r *Received, d *transport.RxPacket) {
	members := e.groups[d.Dst]
	switch {
	case e.cfg.OwnShards > 1:
		e.grouped = append(e.grouped, *d) // it may be for the others too
	case len(members) == 0:
		e.counters.Device[DropGroup]++
	}
	for _, q := range members {
		e.deliver(now, r, d, q)
	}
}

// misaddressed reports whether a packet for one queue pair was sent to a group,
// where only what is for the group belongs (IBTA 9.6).
func misaddressed(d *transport.RxPacket, to rocev2.QPN) bool {
	return d.Dst.IsMulticast() && to != rocev2.MulticastQPN
}
