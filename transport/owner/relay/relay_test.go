package relay

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

var (
	home  = netip.MustParseAddr("10.0.0.1")
	away  = netip.MustParseAddr("10.0.0.2")
	other = netip.MustParseAddr("10.0.0.3")
)

// bench is a relay and a time.
type bench struct {
	t   *testing.T
	r   *Relay
	now clock.Time
}

func newBench(t *testing.T, slots ...int) *bench {
	rng := rand.New(rand.NewPCG(1, 1))
	x := &bench{t: t, now: 1, r: New(Config{Addr: home, GUID: 7, Random: rng.Uint32, Identity: mad.ECE{VendorID: 5, Options: 1}})}
	for _, s := range slots {
		if err := x.r.Join(s, Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// packet makes the packet of a MAD.
func packet(m mad.Message) []byte {
	b := make([]byte, PacketLen)
	putHeaders(b, 0)
	m.AppendTo(b[PacketLen-mad.Len : PacketLen-mad.Len])
	return b
}

func (x *bench) in(from netip.Addr, m mad.Message) Verdict {
	return x.r.Inbound(x.now, Source{Addr: from}, packet(m))
}

func (x *bench) out(slot int, to netip.Addr, m mad.Message) Verdict {
	return x.r.Outbound(x.now, slot, Source{Addr: to}, packet(m))
}

func (x *bench) want(what string, got, want Verdict) {
	x.t.Helper()
	if got != want {
		x.t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// sent takes all that the relay sends.
func (x *bench) sent() (all []mad.Message, to []Datagram) {
	x.t.Helper()
	for {
		b := make([]byte, PacketLen)
		d, ok := x.r.Send(b)
		if !ok {
			return all, to
		}
		payload, ok := MAD(b)
		_, m, err := mad.Parse(payload)
		if !ok || err != nil {
			x.t.Fatalf("the relay sends no MAD: %v", err)
		}
		all, to = append(all, m), append(to, d)
	}
}

func (x *bench) sleep(d time.Duration) {
	x.now = x.now.Add(d)
	x.r.Advance(x.now)
}

func request(id mad.CommID, qpn rocev2.QPN, service mad.ServiceID) *mad.REQ {
	return &mad.REQ{LocalID: id, LocalQPN: qpn, ServiceID: service, LocalGUID: 9, PathMTU: 3,
		Primary: mad.Path{LocalGID: away, RemoteGID: home, AckTimeout: 10}}
}

var (
	toLease3 = Verdict{Action: ToLease, Slot: 3}
	toLease4 = Verdict{Action: ToLease, Slot: 4}
	forward  = Verdict{Action: Forward}
	taken    = Verdict{Action: Taken}
)

// accepted makes a connection that a lease has accepted.
func (x *bench) accepted(slot int, local, remote mad.CommID, qpn rocev2.QPN) {
	x.t.Helper()
	id := uint64(5000 + slot)
	if x.r.services.of(id) == nil {
		if err := x.r.Reserve(slot, id, whole); err != nil {
			x.t.Fatal(err)
		}
	}
	x.want("REQ", x.in(away, request(remote, qpn, mad.ServiceID(id))), Verdict{Action: ToLease, Slot: slot})
	x.want("REP", x.out(slot, away, &mad.REP{LocalID: local, RemoteID: remote, LocalQPN: 77}), forward)
	x.want("RTU", x.in(away, &mad.RTU{LocalID: remote, RemoteID: local}), Verdict{Action: ToLease, Slot: slot})
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3, 4)
	x.accepted(3, 0x103, 0x55, 10)
	x.want("DREQ for a lease", x.in(away, &mad.DREQ{LocalID: 0x55, RemoteID: 0x103}), toLease3)
	x.want("REP for a lease that does not know it", x.in(away, &mad.REP{LocalID: 1, RemoteID: 0x204}), toLease4)
	x.want("SIDR_REP", x.in(away, &mad.SIDRREP{RequestID: 0x304}), toLease4)
	x.want("an unknown service", x.in(away, request(9, 9, 1)), taken)
	if all, _ := x.sent(); len(all) != 1 || all[0].(*mad.REJ).Reason != mad.ReasonInvalidServiceID {
		t.Errorf("an unknown service is answered by %v", all)
	}
	x.want("DREQ of what is not known", x.in(away, &mad.DREQ{LocalID: 9, RemoteID: 0x109}), taken)
	if all, _ := x.sent(); len(all) != 1 || all[0].Attribute() != mad.AttrDREP {
		t.Errorf("the DREQ is answered by %v", all)
	}
	ip := mad.IPHeader{Source: away, Destination: home}
	x.want("ping", x.in(away, &mad.SIDRREQ{RequestID: 4, ServiceID: mad.PortSpaceUDP.Service(0), Private: append(ip.AppendTo(nil), 0, 0, 5)}), taken)
	if all, _ := x.sent(); len(all) != 1 || all[0].(*mad.SIDRREP).Status != mad.SIDRUnsupported || all[0].(*mad.SIDRREP).ECE.VendorID != 5 {
		t.Errorf("the question for the identity is answered by %v", all)
	}
	x.want("the own address from outside", x.in(home, &mad.RTU{RemoteID: 0x103}), drop(OwnAddress))
	x.want("no receiver", x.in(away, &mad.RTU{LocalID: 4}), drop(Unexpected))
	x.want("a foreign ID", x.out(3, away, &mad.RTU{LocalID: 0x104, RemoteID: 1}), drop(WrongID))
	x.want("no lease", x.out(5, away, &mad.RTU{LocalID: 0x105, RemoteID: 1}), drop(NoLease))
	x.want("a group", x.out(3, netip.MustParseAddr("224.0.0.9"), &mad.RTU{LocalID: 0x103, RemoteID: 1}), drop(NoPeer))
}

func TestServices(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3, 4)
	reserve := func(slot int, id, mask uint64, holder int) {
		t.Helper()
		err := x.r.Reserve(slot, id, mask)
		var e *ServiceError
		if errors.As(err, &e) != (holder >= 0) || e != nil && e.Holder != holder {
			t.Errorf("slot %d reserves %x/%x: %v", slot, id, mask, err)
		}
	}
	reserve(3, 0x1000, whole, -1)
	reserve(4, 0x1000, whole, 3)
	reserve(4, 0x1000, whole&^0xff, 3)
	reserve(4, 0x2000, whole&^0xff, -1)
	reserve(3, 0x20ab, whole, 4)
	reserve(3, 0x20ab, whole&^0xf, 4)
	x.want("a masked service", x.in(away, request(1, 2, 0x2042)), toLease4)
	x.r.Release(x.now, 3, 0x2000, whole&^0xff)
	reserve(3, 0x2001, whole, 4)
	x.r.Release(x.now, 4, 0x2000, whole&^0xff)
	reserve(3, 0x2001, whole, -1)
	x.r.Leave(x.now, 3)
	x.r.Leave(x.now, 4)
	if n := x.r.Stats().Services; n != 0 {
		t.Errorf("%d services are left", n)
	}
}

// TestFarewell ends leases with connections in each state.
func TestFarewell(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3)
	x.accepted(3, 0x103, 0x55, 10)
	x.want("REQ", x.in(away, request(0x56, 11, 5003)), toLease3)
	x.want("own REQ", x.out(3, other, request(0x203, 12, 1)), forward)
	x.r.Leave(x.now, 3)
	x.sleep(time.Millisecond)
	all, to := x.sent()
	if len(all) != 3 {
		t.Fatalf("peers are told %v", all)
	}
	dreq := all[0].(*mad.DREQ)
	if dreq.LocalID != 0x103 || dreq.RemoteID != 0x55 || dreq.RemoteQPN != 10 || to[0].Addr != away || to[0].Slot != Network {
		t.Errorf("DREQ %+v to %+v", dreq, to[0])
	}
	if rej := all[1].(*mad.REJ); rej.Reason != mad.ReasonTimeout || rej.LocalID != 0x203 || to[1].Addr != other {
		t.Errorf("REJ of the own request: %+v", rej)
	}
	if rej := all[2].(*mad.REJ); rej.Message != mad.StageREQ || rej.RemoteID != 0x56 {
		t.Errorf("REJ of the peer's request: %+v", rej)
	}
	x.want("DREP of somebody else", x.in(other, &mad.DREP{LocalID: 0x55, RemoteID: 0x103}), taken)
	for i := range partTurns - 1 {
		x.sleep(partWaits[i])
		if all, _ := x.sent(); len(all) != 1 || all[0].Attribute() != mad.AttrDREQ {
			t.Errorf("turn %d: %v", i, all)
		}
	}
	x.sleep(partWaits[partTurns-1])
	if all, _ := x.sent(); len(all) != 0 || x.r.Stats().Unanswered != 1 || x.r.Stats().Parting != 0 {
		t.Errorf("after all turns: %v, %+v", all, x.r.Stats())
	}
}

// Where the RTU is lost, and the first data stand for it, the connection is
// there all the same: its peer is told.
func TestLostRTU(t *testing.T) {
	for _, crowd := range []int{0, 5000} { // requests of others without an answer
		x := newBench(t, 3)
		if err := x.r.Reserve(3, 100, whole); err != nil {
			t.Fatal(err)
		}
		x.want("REQ", x.in(away, request(0x700, 9, 100)), toLease3)
		x.want("REP", x.out(3, away, &mad.REP{LocalID: 0x103, RemoteID: 0x700, LocalQPN: 77}), forward)
		for i := range crowd {
			x.now = x.now.Add(time.Millisecond)
			x.in(other, request(mad.CommID(0x10000+i), 10, 100))
		}
		x.sleep(silence + time.Second)
		if s, _ := x.r.Lease(3); s.Connections != 1 {
			t.Errorf("%d requests: %+v", crowd, s)
		}
		x.r.Leave(x.now, 3)
		all, _ := x.sent()
		if len(all) != 1 {
			t.Fatalf("%d requests: %d messages", crowd, len(all))
		}
		if m, ok := all[0].(*mad.DREQ); !ok || m.LocalID != 0x103 || m.RemoteID != 0x700 || m.RemoteQPN != 9 {
			t.Errorf("%+v", all[0])
		}
	}
}

// TestFarewellAnswered has a new lease at the slot before the DREP comes.
func TestFarewellAnswered(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3)
	x.accepted(3, 0x103, 0x55, 10)
	x.r.Leave(x.now, 3)
	if err := x.r.Join(3, Limits{}); err != nil {
		t.Fatal(err)
	}
	x.sent()
	x.want("DREP", x.in(away, &mad.DREP{LocalID: 0x55, RemoteID: 0x103}), taken)
	if s := x.r.Stats(); s.Parting != 0 || s.Connections != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStale has a peer use the queue pair of a connection of one lease for one
// of another.
func TestStale(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3, 4)
	x.accepted(3, 0x103, 0x55, 10)
	x.accepted(4, 0x104, 0x56, 10)
	all, to := x.sent()
	if len(all) != 1 || to[0].Slot != 3 || to[0].Addr != away {
		t.Fatalf("%v %v", all, to)
	}
	if m := all[0].(*mad.DREQ); m.LocalID != 0x55 || m.RemoteID != 0x103 || m.RemoteQPN != 77 {
		t.Errorf("%+v", m)
	}
	x.want("DREP", x.out(3, away, &mad.DREP{LocalID: 0x103, RemoteID: 0x55}), forward)
	if s := x.r.Stats(); s.Connections != 1 || s.Stale != 1 {
		t.Errorf("%+v", s)
	}
}

// TestFlood has strangers flood a lease: another lease and the connections of
// the first hear nothing of it, and what is kept is bounded.
func TestFlood(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3, 4)
	x.accepted(3, 0x103, 0x55, 10)
	x.accepted(4, 0x104, 0x56, 11)
	rng := rand.New(rand.NewPCG(5, 6))
	passed := 0
	for i := range 200_000 {
		from := netip.AddrFrom4([4]byte{11, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())})
		if x.in(from, request(mad.CommID(rng.Uint32()|1), 12, 5003)).Action == ToLease {
			passed++
		}
		x.in(from, &mad.RTU{LocalID: mad.CommID(rng.Uint32()), RemoteID: mad.CommID(rng.Uint32()&^0xff | 3)})
		if i%2000 == 0 {
			x.now = x.now.Add(10 * time.Millisecond)
			x.want("MRA of a connection", x.in(away, &mad.DREP{LocalID: 0x55, RemoteID: 0x103}), toLease3)
			x.want("REQ for another lease", x.in(away, request(mad.CommID(i+1000), rocev2.QPN(i+1000), 5004)), toLease4)
			x.out(4, away, &mad.REJ{RemoteID: mad.CommID(i + 1000)})
		}
	}
	if passed > 25_000 {
		t.Errorf("%d of 200,000 requests within a second pass", passed)
	}
	if s := x.r.Stats(); s.Connections > 8192+2 {
		t.Errorf("%d connections are followed", s.Connections)
	}
	x.sleep(silence)
	if s := x.r.Stats(); s.Connections != 2 {
		t.Errorf("%d connections are followed after the flood", s.Connections)
	}
}

// TestLeaseThatFloods gets no more than its part through.
func TestLeaseThatFloods(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3)
	passed := 0
	for i := range 100_000 {
		if x.out(3, away, request(mad.CommID(i<<8|3), 5, 1)).Action == Forward {
			passed++
		}
	}
	if passed > 2100 {
		t.Errorf("%d requests at once pass", passed)
	}
}

// What asks for a service that a lease has had until a moment ago goes to that
// lease: it may be about to listen again.
func TestFormerService(t *testing.T) {
	t.Parallel()
	x := newBench(t, 3, 4)
	ask := func(what string, want Verdict) {
		t.Helper()
		x.want(what+": REQ", x.in(away, request(mad.CommID(x.now), 17, 7)), want)
		x.want(what+": SIDR_REQ", x.in(away, &mad.SIDRREQ{RequestID: mad.CommID(x.now), ServiceID: 7}), want)
		x.sent()
		x.now++
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	x.r.Release(x.now, 3, 7, whole)
	ask("it never had it", taken)
	must(x.r.Reserve(3, 7, whole))
	x.sleep(time.Hour) // nothing comes meanwhile
	x.r.Release(x.now, 3, 7, whole)
	ask("a moment ago", toLease3)
	must(x.r.Reserve(4, 7, whole))
	ask("another lease has it", toLease4)
	x.r.Release(x.now, 4, 7, whole)
	ask("and has it no more", toLease4)
	x.r.Leave(x.now, 4)
	ask("nor lives", toLease3)
	x.now = x.now.Add(formerLife)
	ask("long ago", taken)
}
