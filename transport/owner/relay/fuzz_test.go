package relay

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// FuzzRelay has strangers and leases send anything. Nothing panics, a lease is
// given nothing that is for another, nothing grows beyond its bounds, and when
// all leases have gone nothing is left.
func FuzzRelay(f *testing.F) {
	for _, m := range []mad.Message{request(0x55, 10, 0x1003), &mad.REP{LocalID: 0x103, RemoteID: 0x55}, &mad.RTU{LocalID: 0x55, RemoteID: 0x103},
		&mad.REJ{LocalID: 0x55, Reason: mad.ReasonTimeout}, &mad.DREQ{LocalID: 0x55, RemoteID: 0x103}, &mad.DREP{LocalID: 0x103, RemoteID: 0x55},
		&mad.SIDRREQ{RequestID: 3, ServiceID: 0x1004}, &mad.SIDRREP{RequestID: 3}, &mad.MRA{LocalID: 0x55, RemoteID: 0x103}} {
		b := m.AppendTo(nil)
		f.Add(append([]byte{0, 1, 1}, b[mad.HeaderLen:mad.HeaderLen+60]...))
	}
	f.Add([]byte{0, 0, 0, 1, 1, 1, 2, 2, 2, 0x40, 0, 0, 0x80, 1, 3})
	f.Fuzz(func(t *testing.T, in []byte) { fuzzRelay(t, in) })
}

// TestRandomMessages is FuzzRelay on what a seed makes.
func TestRandomMessages(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 9))
	for range 300 {
		b := make([]byte, rng.IntN(4000))
		for i := range b {
			b[i] = byte(rng.Uint32())
			if rng.IntN(2) == 0 {
				b[i] &= 3
			}
		}
		fuzzRelay(t, b)
	}
}

func fuzzRelay(t *testing.T, in []byte) {
	x := newBench(t)
	next := func() (b byte) {
		if len(in) > 0 {
			b, in = in[0], in[1:]
		}
		return b
	}
	limits := Limits{Connections: 4, Requests: 4, Services: 4}
	peers := []netip.Addr{away, home, other, {}}
	for len(in) > 0 {
		op, slot, peer := next(), int(next()&7), peers[next()&3]
		switch {
		case op < 8:
			_ = x.r.Join(slot, limits)
		case op < 16:
			x.r.Leave(x.now, slot)
		case op < 24:
			_ = x.r.Reserve(slot, uint64(next()&15), whole^uint64(next()&3))
		case op < 32:
			x.r.Release(x.now, slot, uint64(next()&15), whole^uint64(next()&3))
		case op < 40:
			x.sleep(time.Duration(next()) * 20 * time.Millisecond)
		default:
			x.fuzzPacket(op, slot, peer, next)
		}
		x.sent()
		if s := x.r.Stats(); s.Connections > 8*10 || s.Services > 8*4 {
			t.Fatalf("beyond the bounds: %+v", s)
		}
	}
	for slot := range Slots {
		x.r.Leave(x.now, slot)
	}
	x.sent()
	for range partTurns + 1 {
		x.sleep(10 * time.Second)
		x.sent()
	}
	if s := x.r.Stats(); s.Leases+s.Connections+s.Parting+s.Services != 0 {
		t.Fatalf("something is left: %+v", s)
	}
	if n := len(x.r.byLocal) + len(x.r.byRemote) + len(x.r.byQPN) + len(x.r.ready); n != 0 {
		t.Fatalf("%d entries are left in tables", n)
	}
}

// fuzzPacket sends a packet that is mostly in order.
func (x *bench) fuzzPacket(op byte, slot int, peer netip.Addr, next func() byte) {
	b := make([]byte, PacketLen)
	(&mad.DREP{}).AppendTo(b[PacketLen-mad.Len : PacketLen-mad.Len])
	putHeaders(b, 0)
	payload := b[PacketLen-mad.Len:]
	payload[17] = byte(mad.AttrREQ) + op%11
	for i := range 8 {
		payload[mad.HeaderLen+i] = next() & 7
	}
	for range next() & 7 {
		payload[int(next())] = next()
	}
	if op&0x40 != 0 {
		b[next()%32] = next()
	}
	id := read(&mad.Header{Attribute: mad.Attribute(be.Uint16(payload[16:]))}, payload).remote
	var v Verdict
	if op&0x80 != 0 {
		v = x.r.Outbound(x.now, slot, Source{Addr: peer}, b)
	} else {
		v = x.r.Inbound(x.now, Source{Addr: peer}, b)
	}
	if v.Action == ToLease && x.r.leases[v.Slot] == nil {
		x.t.Fatalf("to slot %d, which has no lease", v.Slot)
	}
	if class := payload[1]; v.Action == ToLease && class == mad.ClassCM && id != 0 && slotOf(id) != v.Slot {
		x.t.Fatalf("for %08x, to slot %d", id, v.Slot)
	}
}
