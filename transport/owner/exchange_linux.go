//go:build !portable

package owner

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner/relay"
)

// exchange is what the owner does in its own slot, by one goroutine: it passes
// management datagrams on between the network and the leaseholders, and answers
// what belongs to none of them. It does so under its lock, for which a
// leaseholder's goroutine waits that reserves a service, or that leaves.
type exchange struct {
	owner *Owner
	link  transport.Link
	local netip.Addr // without zone
	base  time.Time  // time 0
	rx    *transport.RxBatch
	looks attention // of run

	mu      sync.Mutex // guards what follows
	relay   *relay.Relay
	tx      *transport.TxBatch
	paths   map[pathKey]*transport.Path
	tenants [mostSlots]*resident // by their first slot
	tokens  map[lease.Token]*resident
	own     [relay.PacketLen]byte // a packet of the relay's
	dropped uint64
	strays  uint64
}

// resident is what is known here of a leaseholder.
type resident struct {
	*tenant
	path   *transport.Path // to its slot: of its own, since packets of one path leave as one run
	strays bucket          // of what it claims to have received for others
}

// strayRate is how many packets for others a leaseholder may hand over in a
// second, and at once. One that keeps to the protocol has the same bound.
const strayRate = 20000

// pathKey says how datagrams reach a peer.
type pathKey struct {
	dst          netip.Addr
	trafficClass uint8
	hopLimit     uint8
	flowLabel    uint32
}

// mostPaths is how many are kept: a lease that uses more pays with work only.
const mostPaths = 1024

// exchangeBytes is how many bytes of datagrams are sent at once.
const exchangeBytes = 256 << 10

func newExchange(o *Owner) (*exchange, error) {
	own, err := o.slots.Link(ownSlot)
	if err != nil {
		return nil, err
	}
	link := transport.Link(own)
	if s := o.cfg.Secured; s != nil {
		link = guard.New(own, guard.Config{Table: s.Table, Slot: ownSlot, Want: s.Want})
	}
	x := &exchange{owner: o, link: link, local: o.slots.Local().Addr().WithZone(""), base: time.Now(),
		rx: transport.NewRxBatch(64), tx: transport.NewTxBatch(exchangeBytes),
		paths: map[pathKey]*transport.Path{}, tokens: map[lease.Token]*resident{}}
	x.relay = relay.New(relay.Config{Addr: x.local, GUID: mad.GUID(random64()), Random: random32, Identity: mad.Native})
	return x, nil
}

// random32 gives what a peer must not be able to guess.
func random32() uint32 { return uint32(random64()) }

func random64() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

func (x *exchange) now() clock.Time { return clock.Time(time.Since(x.base)) + 1 }

// run passes on what comes until the link is closed.
func (x *exchange) run() {
	alarm := time.AfterFunc(time.Hour, x.link.Wake)
	defer alarm.Stop()
	for {
		if wait, ok := x.wait(); ok {
			alarm.Reset(wait)
		}
		if x.link.Wait() != nil {
			return
		}
		if _, passed := x.lockedRound(); passed {
			x.look()
		}
	}
}

// yieldLooks is after how many looks others are let to the processor.
const yieldLooks = 16

// look goes on receiving for a moment, as long as that pays (attention).
func (x *exchange) look() {
	since := time.Since(x.base)
	for n, last := 1, since; n == 1 && x.looks.may(since) || n > 1; n++ {
		if n%yieldLooks == 0 {
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		packets, passed := x.lockedRound()
		now := time.Since(x.base)
		switch {
		case passed:
			x.looks.came(now - since)
			since, n = now, 0
		case now-last > lookPreempted && packets == 0:
			x.looks.interrupted(now)
			return
		case now-since > lookFor:
			x.looks.nothing(now - since)
			return
		}
		last = now
	}
}

func (x *exchange) lockedRound() (packets int, passed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.round()
}

// round passes on what waits, as much as is received at once, and reports how
// many packets that was, and whether anything was sent.
func (x *exchange) round() (packets int, passed bool) {
	_, _ = x.link.Recv(x.rx) // Wait waits where that fails
	now := x.now()
	all := x.rx.Packets()
	for i := range all {
		x.receive(now, &all[i])
	}
	x.advance(now)
	passed = x.tx.Len() > 0
	x.flush()
	return len(all), passed
}

// wait returns how long there is nothing to do but for what comes.
func (x *exchange) wait() (time.Duration, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.relay.Deadline()
	if at == math.MaxInt64 {
		return 0, false
	}
	return max(at.Sub(x.now()), 1), true
}

// receive takes one packet.
func (x *exchange) receive(now clock.Time, p *transport.RxPacket) {
	switch {
	case p.ICRC.Refuses() || p.Dst != x.local:
		x.dropped++
	case lease.IsEnvelope(p.Data):
		x.fromLease(now, p)
	case destQPN(p.Data) != ownSlot:
		x.stray(p, p.Data[:len(p.Data)-rocev2.ICRCLen], nil)
	default:
		inner := p.Data[:len(p.Data)-rocev2.ICRCLen]
		from := relay.Source{Addr: p.Src, TrafficClass: p.TrafficClass, FlowLabel: p.FlowLabel}
		x.obey(x.relay.Inbound(now, from, inner), p, inner)
	}
}

// destQPN reads the destination of a packet.
func destQPN(b []byte) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(b[4:])) & rocev2.QPNMask
}

// fromLease takes what a leaseholder has wrapped: a management datagram to
// send, or a packet that came to it astray.
func (x *exchange) fromLease(now clock.Time, p *transport.RxPacket) {
	var e lease.Envelope
	inner, ok := e.Open(p.Data)
	r := x.tokens[e.Token]
	if !ok || r == nil || p.Src != x.local || e.Addr.Is4() != x.local.Is4() {
		x.dropped++
		return
	}
	if destQPN(inner) != ownSlot {
		if !r.strays.allow(time.Now()) {
			x.dropped++
			return
		}
		from := transport.RxPacket{Src: e.Addr, SrcPort: e.Port, TrafficClass: e.TrafficClass, HopLimit: e.HopLimit, FlowLabel: e.FlowLabel}
		x.stray(&from, inner, r)
		return
	}
	to := relay.Source{Addr: e.Addr, TrafficClass: e.TrafficClass, FlowLabel: e.FlowLabel}
	v := x.relay.Outbound(now, r.slot, to, inner)
	if v.Action == relay.Forward {
		x.put(inner, x.pathTo(pathKey{e.Addr, e.TrafficClass, e.HopLimit, e.FlowLabel}))
		return
	}
	from := transport.RxPacket{Src: x.local, SrcPort: x.owner.slots.Local().Port(),
		TrafficClass: e.TrafficClass, HopLimit: e.HopLimit, FlowLabel: e.FlowLabel}
	x.obey(v, &from, inner)
}

// obey does with a management datagram, BTH to pad, what the relay says. It is
// from where p says.
func (x *exchange) obey(v relay.Verdict, p *transport.RxPacket, inner []byte) {
	if v.Action != relay.ToLease {
		return
	}
	if r := x.tenants[v.Slot]; r != nil {
		x.wrap(r, rocev2.QPN(r.slot), p, inner)
	}
}

// stray gives a packet, BTH to pad, to the slot that its QPN belongs to. One
// that has come back from there is lost, and so is one that a leaseholder of
// another user claims to have received.
func (x *exchange) stray(p *transport.RxPacket, inner []byte, from *resident) {
	slot := int(destQPN(inner)) & (x.owner.slots.Len() - 1)
	for first, r := range x.tenants {
		if r == nil || slot < first || slot >= first+r.n || r == from || from != nil && r.uid != from.uid {
			continue
		}
		x.strays++
		x.wrap(r, rocev2.QPN(slot), p, inner)
		return
	}
	x.dropped++
}

// wrap sends a packet to a leaseholder, as one from where p came from.
func (x *exchange) wrap(r *resident, to rocev2.QPN, p *transport.RxPacket, inner []byte) {
	room := x.room()
	e := lease.Envelope{To: to, Token: r.token, Addr: p.Src, Port: p.SrcPort,
		TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel}
	if n := e.Put(room, inner); n > 0 {
		x.tx.Commit(n, r.path)
		return
	}
	x.dropped++
}

// put sends a packet, BTH to pad.
func (x *exchange) put(inner []byte, path *transport.Path) {
	x.tx.Commit(copy(x.room(), inner), path)
}

// room returns room for a packet.
func (x *exchange) room() []byte {
	room := x.tx.Room()
	if room == nil {
		x.flush()
		room = x.tx.Room()
	}
	return room
}

// flush sends what there is.
func (x *exchange) flush() {
	if x.tx.Len() > 0 {
		_ = x.link.Send(x.tx) // what is not sent is lost, as in the network
		x.tx.Reset()
	}
}

func (x *exchange) pathTo(k pathKey) *transport.Path {
	if p := x.paths[k]; p != nil {
		return p
	}
	if len(x.paths) >= mostPaths {
		clear(x.paths)
	}
	p := transport.NewPath(x.local, transport.Path{Dst: k.dst, TrafficClass: k.trafficClass, HopLimit: k.hopLimit, FlowLabel: k.flowLabel})
	x.paths[k] = p
	return p
}

// advance does what time calls for, and sends what the relay itself has to say.
func (x *exchange) advance(now clock.Time) {
	if x.relay.Deadline() <= now {
		x.relay.Advance(now)
	}
	for {
		d, ok := x.relay.Send(x.own[:])
		if !ok {
			return
		}
		if d.Slot == relay.Network {
			x.put(x.own[:], x.pathTo(pathKey{d.Addr, d.TrafficClass, d.HopLimit, d.FlowLabel}))
			continue
		}
		from := transport.RxPacket{Src: d.Addr, SrcPort: x.owner.slots.Local().Port(),
			TrafficClass: d.TrafficClass, HopLimit: d.HopLimit, FlowLabel: d.FlowLabel}
		if r := x.tenants[d.Slot]; r != nil {
			x.wrap(r, rocev2.QPN(r.slot), &from, x.own[:])
		}
	}
}

// join enters a leaseholder.
func (x *exchange) join(t *tenant) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.relay.Join(t.slot, relay.Limits{MADs: x.owner.cfg.Quota.MADs}); err != nil {
		return err
	}
	r := &resident{tenant: t, path: transport.NewPath(x.local, transport.Path{Dst: x.local}),
		strays: newBucket(strayRate, strayRate, time.Now())}
	x.tenants[t.slot], x.tokens[t.token] = r, r
	return nil
}

// lastRounds bounds what is passed on for a leaseholder before it is taken out.
const lastRounds = 16

// leave passes on what a leaseholder has sent last, takes it out, and has its
// peers told. All of it has left when leave returns.
func (x *exchange) leave(t *tenant) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for range lastRounds {
		if n, _ := x.round(); n == 0 {
			break
		}
	}
	delete(x.tokens, t.token)
	if r := x.tenants[t.slot]; r != nil && r.tenant == t {
		x.tenants[t.slot] = nil
		x.relay.Leave(x.now(), t.slot)
	}
	x.advance(x.now())
	x.flush()
	x.link.Wake() // for the deadline
}

// How long the peers of leases are told at most where the owner ends, and how
// often it is looked whether all are.
const (
	farewellTime = 500 * time.Millisecond
	farewellLook = time.Millisecond
)

// farewell waits until all peers of leases that have ended are told once.
func (x *exchange) farewell() {
	tick := time.NewTicker(farewellLook)
	defer tick.Stop()
	for end := time.Now().Add(farewellTime); time.Now().Before(end); <-tick.C {
		x.mu.Lock()
		left := x.relay.Stats().Untold
		x.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

// reserve gives a service to a leaseholder.
func (x *exchange) reserve(t *tenant, s *lease.Service) *lease.Refusal {
	x.mu.Lock()
	defer x.mu.Unlock()
	err := x.relay.Reserve(t.slot, s.ID, s.Mask)
	taken := (*relay.ServiceError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &taken) && taken.Holder != relay.Network && x.tenants[taken.Holder] != nil:
		r := x.tenants[taken.Holder]
		return refusal(lease.InUse, "service ID %v is taken by process %d (%s), which has the same address: choose another one, or end that process",
			mad.ServiceID(s.ID), r.pid, r.command)
	}
	return refusal(lease.OverQuota, "%v", err)
}

func (x *exchange) release(t *tenant, s *lease.Service) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.relay.Release(x.now(), t.slot, s.ID, s.Mask)
}

// stats fills in the counters.
func (x *exchange) stats(s *Stats) {
	x.mu.Lock()
	defer x.mu.Unlock()
	r := x.relay.Stats()
	s.Relayed, s.Answered, s.Strays, s.Dropped = r.ToLeases+r.ToNetwork, r.Taken, x.strays, x.dropped
	for _, n := range r.Drops {
		s.Dropped += n
	}
}

// describe fills in what is known of a lease here.
func (x *exchange) describe(t *tenant, l *Lease) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.relay.Lease(t.slot)
	if ok {
		l.Connections, l.Peers, l.Services = s.Connections, s.Peers, s.Services
	}
}

func (x *exchange) close() error { return x.link.Close() }
