package relay

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Relay is the switch of one address. It is not safe for concurrent use.
type Relay struct {
	cfg      Config
	addr     netip.Addr
	leases   [Slots]*lease
	services services
	byLocal  map[mad.CommID]*conn // by the lease's ID
	byRemote map[remoteKey]*conn  // by the ID of a peer that has asked
	byQPN    map[qpnKey]*conn     // established, by the peer's queue pair
	parting  parting
	agent    *agent.Agent // for what belongs to no lease
	ready    []note       // for leases
	now      clock.Time
	psn      rocev2.PSN
	stats    Stats
}

// lease is what is known of one.
type lease struct {
	slot     int
	limits   Limits
	services map[service]struct{}
	masks    int
	conns    int
	// lists of its connections, each the longest silent first: those that
	// it makes, or ends; requests of peers; and the established ones.
	opening, asked, settled list.List[conn]
	// meters of what passes: about connections that are known, what else is
	// for the lease, requests, and what it sends.
	in, strange, requests, out meter
	toLease, fromLease         uint64
	drops                      uint64
}

// meter is a leaky bucket: the time at which it is empty.
type meter clock.Time

// take lets one more through, unless there were more than the rate of a second
// within a tenth of one.
func (m *meter) take(now clock.Time, rate int) bool {
	each := time.Second / time.Duration(rate)
	at := max(clock.Time(*m), now)
	if at.Sub(now) > max(time.Second/10, each) {
		return false
	}
	*m = meter(at.Add(each))
	return true
}

// note is a MAD for a lease that the relay sends in the name of a peer.
type note struct {
	slot int
	from netip.Addr
	mad  [mad.Len]byte
}

// New makes a relay without leases.
func New(cfg Config) *Relay {
	or(&cfg.Farewells, 65536)
	return &Relay{
		cfg:      cfg,
		addr:     cfg.Addr.Unmap().WithZone(""),
		services: services{exact: map[uint64]*lease{}, masked: map[service]*lease{}},
		byLocal:  map[mad.CommID]*conn{},
		byRemote: map[remoteKey]*conn{},
		byQPN:    map[qpnKey]*conn{},
		parting:  parting{of: map[partKey]*conn{}},
		agent:    agent.New(agent.Config{GUID: cfg.GUID, Random: cfg.Random, Identity: cfg.Identity}),
		psn:      rocev2.PSN(cfg.Random()),
	}
}

func (r *Relay) at(slot int) *lease {
	if slot < 0 || slot >= Slots {
		return nil
	}
	return r.leases[slot]
}

func errNoLease(slot int) error { return fmt.Errorf("relay: slot %d has no lease", slot) }

// Join adds a lease, by the first of its slots.
func (r *Relay) Join(slot int, limits Limits) error {
	if slot < 0 || slot >= Slots || r.leases[slot] != nil {
		return fmt.Errorf("relay: slot %d is none, or is leased", slot)
	}
	limits.fill()
	r.leases[slot] = &lease{slot: slot, limits: limits, services: map[service]struct{}{}}
	r.stats.Leases++
	return nil
}

// Leave ends a lease. Its services are free, and its peers are told.
func (r *Relay) Leave(now clock.Time, slot int) {
	l := r.at(slot)
	if l == nil {
		return
	}
	r.now = now
	r.leases[slot] = nil
	r.stats.Leases--
	for s := range l.services {
		r.release(l, s)
	}
	r.services.leave(l)
	r.ready = slices.DeleteFunc(r.ready, func(n note) bool { return n.slot == slot })
	for _, of := range []*list.List[conn]{&l.settled, &l.opening, &l.asked} {
		for c := of.Front(); c != nil; c = of.Front() {
			r.forget(c)
			r.part(c)
		}
	}
}

// Inbound says what becomes of a packet, BTH to pad or to ICRC, that the
// network has brought for queue pair 1. The ICRC is right.
func (r *Relay) Inbound(now clock.Time, from Source, packet []byte) Verdict {
	r.now = now
	r.stats.In++
	from.Addr = from.Addr.Unmap().WithZone("")
	b, ok := MAD(packet)
	var v Verdict
	switch {
	case !ok:
		v = drop(Malformed)
	case from.Addr == r.addr:
		v = drop(OwnAddress) // leases have a way of their own
	case !r.isPeer(from.Addr):
		v = drop(NoPeer)
	default:
		v = r.deliver(now, from, b)
	}
	r.count(v)
	return v
}

// Outbound says what becomes of a packet, BTH to pad, that a lease sends to
// queue pair 1 of an address.
func (r *Relay) Outbound(now clock.Time, slot int, to Source, packet []byte) Verdict {
	r.now = now
	r.stats.Out++
	v := r.outbound(now, slot, to, packet)
	if l := r.at(slot); l != nil {
		if v.Action == Drop {
			l.drops++
		} else {
			l.fromLease++
		}
	}
	r.count(v)
	return v
}

func (r *Relay) outbound(now clock.Time, slot int, to Source, packet []byte) Verdict {
	l := r.at(slot)
	if l == nil {
		return drop(NoLease)
	}
	b, ok := MAD(packet)
	to.Addr = to.Addr.Unmap().WithZone("")
	switch {
	case !ok:
		return drop(Malformed)
	case !r.isPeer(to.Addr):
		return drop(NoPeer)
	case !l.out.take(now, l.limits.MADs):
		return drop(TooMany)
	}
	if reason := r.follow(l, to, b); reason != None {
		return drop(reason)
	}
	if to.Addr != r.addr {
		return Verdict{Action: Forward}
	}
	return r.deliver(now, to, b)
}

func (r *Relay) isPeer(a netip.Addr) bool {
	return a.IsValid() && a.Is4() == r.addr.Is4() && !a.IsMulticast() && !a.IsUnspecified()
}

func (r *Relay) count(v Verdict) {
	switch v.Action {
	case Drop:
		r.stats.Drops[v.Reason]++
	case ToLease:
		r.stats.ToLeases++
	case Forward:
		r.stats.ToNetwork++
	case Taken:
		r.stats.Taken++
	}
}

// Send writes the next packet of the relay itself to b, PacketLen bytes, BTH to
// pad, and says where it goes. It reports false if there is none.
func (r *Relay) Send(b []byte) (Datagram, bool) {
	datagram := b[PacketLen-mad.Len : PacketLen]
	for {
		d, ok := r.next(datagram)
		if !ok {
			return d, false
		}
		if d.Slot == Network && d.Addr == r.addr {
			v := r.deliver(r.now, Source{Addr: d.Addr, TrafficClass: d.TrafficClass, FlowLabel: d.FlowLabel}, datagram)
			if v.Action != ToLease {
				continue // the peer was a lease that has gone as well
			}
			d.Slot = v.Slot
		}
		r.psn++
		putHeaders(b, r.psn)
		r.stats.Sent++
		return d, true
	}
}

// next returns the next MAD: for leases, for peers of leases that have gone,
// and of the agent.
func (r *Relay) next(b []byte) (Datagram, bool) {
	if len(r.ready) > 0 {
		n := &r.ready[0]
		copy(b, n.mad[:])
		d := Datagram{Slot: n.slot, Addr: n.from}
		if r.ready = r.ready[1:]; len(r.ready) == 0 {
			r.ready = nil
		}
		return d, true
	}
	if d, ok := r.tellNext(b); ok {
		return d, true
	}
	for _, ok := r.agent.Event(); ok; _, ok = r.agent.Event() { // it serves nothing: there is none
	}
	p, ok := r.agent.Send(b)
	return Datagram{Slot: Network, Addr: p.Remote, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel}, ok
}

// Deadline returns when Advance must be called, or the end of time.
func (r *Relay) Deadline() clock.Time {
	at := min(clock.Time(math.MaxInt64), r.agent.Deadline(), r.parting.deadline())
	for _, l := range r.leases {
		if l == nil {
			continue
		}
		for _, of := range []*list.List[conn]{&l.opening, &l.asked} {
			if c := of.Front(); c != nil {
				at = min(at, c.at)
			}
		}
	}
	return at
}

// Advance does what is due at now.
func (r *Relay) Advance(now clock.Time) {
	r.now = now
	r.agent.Advance(now)
	for _, l := range r.leases {
		if l == nil {
			continue
		}
		for _, of := range []*list.List[conn]{&l.opening, &l.asked} {
			for c := of.Front(); c != nil && c.at <= now; c = of.Front() {
				r.unheard(c)
			}
		}
	}
}

// Stats returns the counters.
func (r *Relay) Stats() Stats {
	s := r.stats
	s.Parting, s.Untold = len(r.parting.of), r.parting.turns[0].Len()
	s.Services = len(r.services.exact) + len(r.services.masked)
	for _, l := range r.leases {
		if l != nil {
			s.Connections += l.conns
		}
	}
	return s
}

// Lease returns the counters of a lease, and false if the slot has none.
func (r *Relay) Lease(slot int) (LeaseStats, bool) {
	l := r.at(slot)
	if l == nil {
		return LeaseStats{}, false
	}
	s := LeaseStats{ToLease: l.toLease, FromLease: l.fromLease, Drops: l.drops,
		Connections: l.settled.Len(), Opening: l.conns - l.settled.Len(), Services: l.serviceIDs()}
	for c := l.settled.Front(); c != nil; c = c.place.Next() {
		s.Peers = append(s.Peers, c.peer)
	}
	slices.SortFunc(s.Peers, netip.Addr.Compare)
	s.Peers = slices.Compact(s.Peers)
	return s, true
}
