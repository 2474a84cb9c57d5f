package relay

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// savedSeeds have failed once.
var savedSeeds = []uint64{
	2744, // the REJ of an earlier request came after the REP of its repetition
}

var seedCount = flag.Int("seeds", 60, "how many seeds TestWorld runs")

// TestWorld runs agents that share an address, and others, on a network that
// loses, repeats and reorders.
func TestWorld(t *testing.T) {
	t.Parallel()
	seeds := savedSeeds
	for i := range *seedCount {
		seeds = append(seeds, uint64(100+i))
	}
	for _, seed := range seeds {
		if err := newWorld(seed).run(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// node is an agent with its program: a lease at home, or a host of its own.
type node struct {
	addr     netip.Addr
	slot     int // Network: a host of its own
	a        *agent.Agent
	services map[mad.ServiceID]bool
	left     map[mad.ServiceID]clock.Time // when it had those for the last time
	dials    map[agent.ID]bool            // that have not ended
	alive    map[agent.ID]bool            // established
	gone     bool
}

type world struct {
	rng    *rand.Rand
	now    clock.Time
	events heap.Heap[clock.Time, func()]
	r      *Relay
	hosts  []*node
	leases map[int]*node
	qpn    rocev2.QPN
	err    error
	dialed int
	joined int
	told   map[mad.CommID]*farewells // by the host's ID
}

// farewells are the DREQs of a lease that has gone.
type farewells struct{ sent, arrived int }

var slots = []int{0, 3, 4, 255}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 28)), now: 1, leases: map[int]*node{}, qpn: 100, told: map[mad.CommID]*farewells{}}
	w.r = New(Config{Addr: home, GUID: 1, Random: w.rng.Uint32})
	for i, a := range []netip.Addr{away, other} {
		w.hosts = append(w.hosts, w.node(a, Network, mad.GUID(i+2)))
	}
	return w
}

func (w *world) node(addr netip.Addr, slot int, guid mad.GUID) *node {
	cfg := agent.Config{GUID: guid, Random: w.rng.Uint32, Shared: slot >= 0}
	if slot >= 0 {
		cfg.Slot = uint8(slot)
	}
	return &node{addr: addr, slot: slot, a: agent.New(cfg), services: map[mad.ServiceID]bool{}, left: map[mad.ServiceID]clock.Time{}, dials: map[agent.ID]bool{}, alive: map[agent.ID]bool{}}
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: %w", time.Duration(w.now), fmt.Errorf(format, args...))
	}
}

func (w *world) after(d time.Duration, f func()) { w.events.Push(w.now.Add(d), f) }

func (w *world) run() error {
	for range 400 {
		w.act()
		w.advance(time.Duration(w.rng.IntN(100)) * time.Millisecond)
	}
	w.advance(90 * time.Second) // all dials end
	for _, n := range w.nodes() {
		if len(n.dials) > 0 {
			w.fail("%d dials of slot %d on %v have not ended", len(n.dials), n.slot, n.addr)
		}
	}
	for _, slot := range slots {
		w.leave(slot)
	}
	w.advance(3 * time.Minute)
	for _, n := range w.hosts {
		for id := range n.alive {
			if f := w.told[mad.CommID(id)]; f != nil && f.sent >= partTurns && f.arrived == 0 {
				n.a.Release(w.now, id) // the network has lost them all
				continue
			}
			w.fail("%v still has connection %08x to a lease that has gone", n.addr, id)
		}
		if c := n.a.Stats().Connections; c > len(n.alive) {
			w.fail("%v still has %d IDs", n.addr, c)
		}
	}
	if s := w.r.Stats(); s.Leases+s.Connections+s.Parting+s.Services != 0 {
		w.fail("the relay keeps %+v", s)
	}
	if len(w.r.byLocal)+len(w.r.byRemote)+len(w.r.byQPN)+len(w.r.ready) != 0 {
		w.fail("tables: %d, %d, %d, %d", len(w.r.byLocal), len(w.r.byRemote), len(w.r.byQPN), len(w.r.ready))
	}
	if w.dialed == 0 || w.joined < 2 {
		w.fail("%d connections, %d leases: nothing has happened", w.dialed, w.joined)
	}
	return w.err
}

func (w *world) nodes() (all []*node) {
	all = append(all, w.hosts...)
	for _, s := range slots {
		if n := w.leases[s]; n != nil {
			all = append(all, n)
		}
	}
	return all
}

// act does one thing that programs or processes do.
func (w *world) act() {
	slot := slots[w.rng.IntN(len(slots))]
	switch n := w.leases[slot]; {
	case n == nil:
		if w.rng.IntN(3) == 0 {
			w.join(slot)
		}
	case w.rng.IntN(40) == 0:
		w.leave(slot)
	case w.rng.IntN(4) == 0:
		w.listen(n)
	}
	all := w.nodes()
	n := all[w.rng.IntN(len(all))]
	if w.rng.IntN(8) == 0 {
		w.listen(w.hosts[w.rng.IntN(2)])
	}
	w.dial(n)
	if len(n.alive) > 3 {
		least := agent.ID(math.MaxUint32)
		for id := range n.alive {
			least = min(least, id)
		}
		delete(n.alive, least)
		n.a.Release(w.now, least)
		w.settle(n)
	}
}

func (w *world) join(slot int) {
	if err := w.r.Join(slot, Limits{}); err != nil {
		w.fail("%v", err)
	}
	w.joined++
	w.leases[slot] = w.node(home, slot, 1)
}

// leave kills the process of a lease: it says nothing.
func (w *world) leave(slot int) {
	if n := w.leases[slot]; n != nil {
		n.gone = true
		delete(w.leases, slot)
		w.r.Leave(w.now, slot)
		w.pull()
	}
}

const firstService, lastService = 1, 12

func (w *world) service() mad.ServiceID {
	return mad.ServiceID(firstService + w.rng.IntN(lastService-firstService))
}

func (w *world) listen(n *node) {
	s := w.service()
	if n.services[s] {
		n.a.Unlisten(s)
		delete(n.services, s)
		n.left[s] = w.now
		w.r.Release(w.now, n.slot, uint64(s), whole)
		return
	}
	if n.slot >= 0 && w.r.Reserve(n.slot, uint64(s), whole) != nil {
		return
	}
	n.services[s] = true
	if err := n.a.Listen(s, 0); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) dial(n *node) {
	to := []netip.Addr{home, away, other}[w.rng.IntN(3)]
	if n.slot == Network {
		to = home // hosts have nothing else to do with each other
	}
	w.qpn++
	path := agent.Path{Local: n.addr, Remote: to}
	var id agent.ID
	var err error
	if w.rng.IntN(5) == 0 {
		id, err = n.a.Resolve(w.now, &agent.SIDRRequest{Path: path, ServiceID: w.service()})
	} else {
		id, err = n.a.Connect(w.now, &agent.ConnectRequest{Path: path,
			REQ: mad.REQ{LocalQPN: w.qpn, ServiceID: w.service(), PathMTU: 3, Primary: mad.Path{AckTimeout: 10}}})
	}
	if err != nil {
		w.fail("%v", err)
	}
	n.dials[id] = true
	w.settle(n)
}

// advance lets time pass.
func (w *world) advance(d time.Duration) {
	for until := w.now.Add(d); ; {
		at := until
		if t, ok := w.events.Min(); ok {
			at = min(at, t)
		}
		at = min(at, w.r.Deadline())
		for _, n := range w.nodes() {
			at = min(at, n.a.Deadline())
		}
		w.now = max(w.now, at)
		for t, ok := w.events.Min(); ok && t <= w.now; t, ok = w.events.Min() {
			_, f := w.events.Pop()
			f()
		}
		w.r.Advance(w.now)
		w.pull()
		for _, n := range w.nodes() {
			n.a.Advance(w.now)
			w.settle(n)
		}
		if w.now >= until {
			return
		}
	}
}

// settle does what the events of an agent ask for, and sends what it has.
func (w *world) settle(n *node) {
	for e, ok := n.a.Event(); ok; e, ok = n.a.Event() {
		w.event(n, &e)
	}
	for {
		b := make([]byte, PacketLen)
		putHeaders(b, 0)
		p, ok := n.a.Send(b[PacketLen-mad.Len:])
		if !ok {
			return
		}
		w.network(func() { w.arrive(n, p, b) })
	}
}

// network brings something to its place, or not, or twice, at some time.
func (w *world) network(f func()) {
	for {
		if w.rng.IntN(20) != 0 {
			w.after(time.Duration(w.rng.IntN(20_000))*time.Microsecond, f)
		}
		if w.rng.IntN(20) != 0 {
			return
		}
	}
}

// arrive brings what n has sent to where it goes.
func (w *world) arrive(n *node, p agent.Path, b []byte) {
	from := Source{Addr: n.addr}
	var v Verdict
	switch {
	case n.gone:
		return
	case n.slot >= 0:
		v = w.r.Outbound(w.now, n.slot, Source{Addr: p.Remote}, b)
	case p.Remote == home:
		v = w.r.Inbound(w.now, from, b)
	default:
		v = Verdict{Action: Forward}
	}
	switch v.Action {
	case ToLease:
		w.give(w.leases[v.Slot], n.addr, b)
	case Forward:
		w.giveHost(p.Remote, n.addr, b)
	case Drop:
		if v.Reason != NoLease && v.Reason != Unexpected {
			w.fail("dropped: %v", v.Reason)
		}
	}
	w.pull()
}

// pull brings what the relay sends.
func (w *world) pull() {
	for {
		b := make([]byte, PacketLen)
		d, ok := w.r.Send(b)
		if !ok {
			return
		}
		if d.Slot == Network {
			f := w.farewell(b)
			f.sent++
			w.network(func() {
				f.arrived++
				w.giveHost(d.Addr, home, b)
			})
		} else {
			w.give(w.leases[d.Slot], d.Addr, b)
		}
	}
}

// farewell returns the account of a DREQ; that of another MAD means nothing.
func (w *world) farewell(b []byte) *farewells {
	payload, _ := MAD(b)
	var q mad.DREQ
	if q.Parse(payload) != nil {
		return new(farewells)
	}
	if w.told[q.RemoteID] == nil {
		w.told[q.RemoteID] = new(farewells)
	}
	return w.told[q.RemoteID]
}

func (w *world) giveHost(to, from netip.Addr, b []byte) {
	for _, h := range w.hosts {
		if h.addr == to {
			w.give(h, from, b)
		}
	}
}

// former reports whether a lease had a service a moment ago, and none has it.
func (w *world) former(n *node, s mad.ServiceID) bool {
	for _, l := range w.leases {
		if l.services[s] {
			return false
		}
	}
	at, had := n.left[s]
	return had && w.now.Sub(at) < formerLife
}

// give gives a packet to an agent, and checks that it is the right one.
func (w *world) give(n *node, from netip.Addr, b []byte) {
	if n == nil {
		w.fail("a packet for a slot without a lease")
		return
	}
	payload, ok := MAD(b)
	h, m, err := mad.Parse(payload)
	if !ok || err != nil {
		w.fail("no MAD: %v", err)
		return
	}
	if id := read(&h, payload).remote; n.slot >= 0 && id != 0 && slotOf(id) != n.slot {
		w.fail("%v for %08x comes to slot %d", h.Attribute, id, n.slot)
	}
	if q, is := m.(*mad.SIDRREQ); is && n.slot >= 0 && !n.services[q.ServiceID] && !w.former(n, q.ServiceID) {
		w.fail("a SIDR_REQ for service %d comes to slot %d", q.ServiceID, n.slot)
	}
	n.a.Receive(w.now, agent.Path{Local: n.addr, Remote: from}, payload)
	w.settle(n)
}

func (w *world) event(n *node, e *agent.Event) {
	var err error
	switch e.Kind {
	case agent.EventRequest:
		if !n.services[e.Request.ServiceID] {
			n.a.Release(w.now, e.ID)
			return
		}
		w.after(time.Duration(w.rng.IntN(300))*time.Millisecond, func() { w.decide(n, e.ID) })
	case agent.EventSIDRRequest:
		err = n.a.Answer(w.now, e.ID, &mad.SIDRREP{QPN: 5})
	case agent.EventReply:
		delete(n.dials, e.ID)
		w.dialed++
		n.alive[e.ID] = true
		err = n.a.Ready(w.now, e.ID, nil)
	case agent.EventEstablished:
		n.alive[e.ID] = true
	case agent.EventDisconnectRequested:
		delete(n.alive, e.ID)
		n.a.Release(w.now, e.ID)
	case agent.EventDisconnected:
		delete(n.alive, e.ID)
	}
	if e.Kind.Final() {
		delete(n.dials, e.ID)
		delete(n.alive, e.ID)
	}
	if err != nil {
		w.fail("%v: %v", e.Kind, err)
	}
}

func (w *world) decide(n *node, id agent.ID) {
	if n.gone || n.a.State(id) != agent.StateREQReceived {
		return
	}
	w.qpn++
	if w.rng.IntN(5) == 0 {
		n.a.Release(w.now, id)
	} else if err := n.a.Accept(w.now, id, &mad.REP{LocalQPN: w.qpn}); err != nil {
		w.fail("%v", err)
	}
	w.settle(n)
}
