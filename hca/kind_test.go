package hca

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// forge hands q a packet as though from its peer's address and a UDP port.
func (h *host) forge(q *QP, src netip.Addr, port uint16, op rocev2.Opcode, psn rocev2.PSN) {
	h.t.Helper()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(), PSN: psn}}
	d := transport.RxPacket{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: src, Dst: h.dev.Addr(),
		SrcPort: port, ICRC: transport.ICRCVerified}
	s := q.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	r := taken{now: s.dev.now()}
	s.dispatch(&r, &d)
	s.flush()
}

// kind returns what a queue pair knows of its peer.
func (q *QP) kind() (own, wide bool, port uint16) {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.own, q.wide, q.peerPort
}

// A peer of whom the program says nothing is not taken for one of our own kind
// whatever it sends. From the well-known port it gets the wide window once a PSN
// was right, and no packet behind a gap is kept.
func TestNativeIsNotGuessed(t *testing.T) {
	t.Parallel()
	a, b := newHosts(t, Config{})
	qa, qb := a.newQP(), b.newQP()
	a.connect(qa, testAddrB, qb.QPN())
	b.connect(qb, testAddrA, qa.QPN())
	for _, c := range []struct {
		op  rocev2.Opcode
		psn rocev2.PSN
	}{{rocev2.CNP, 0}, {rocev2.RCSendOnly, 5}, {rocev2.RCSendOnly, rocev2.MaxPSN}, {rocev2.RCAcknowledge, 0}} {
		a.forge(qa, testAddrB, rocev2.UDPPort, c.op, c.psn)
		if own, wide, port := qa.kind(); own || wide || port != 0 {
			t.Errorf("after %v with PSN %d: own kind %v, wide window %v, port %d", c.op, c.psn, own, wide, port)
		}
	}
	a.write(qa, b, 8)
	a.waitOK(1)
	if own, wide, port := qa.kind(); own || !wide || port != 0 {
		t.Errorf("after a packet in its turn: own kind %v, wide window %v, port %d", own, wide, port)
	}
	a.forge(qa, testAddrB, rocev2.UDPPort, rocev2.RCSendOnly, 5)
	if st := qa.Stats(); st.Kept != 0 || st.Drops[qp.DropOutOfOrder] != 2 {
		t.Errorf("%d packets were kept, %d dropped", st.Kept, st.Drops[qp.DropOutOfOrder])
	}
}

// A peer that the program says is of our own kind sends from one port, which its
// first packet with the right PSN shows.
func TestNativeHasOnePort(t *testing.T) {
	t.Parallel()
	for _, sport := range []uint16{0, 50000} {
		a, b := newHosts(t, Config{})
		qa, qb := a.newQP(), b.newQP()
		a.must(a.connectAV(qa, ib.AddressVector{DGID: testAddrB, Native: true}, qb.QPN()))
		b.must(b.connectAV(qb, ib.AddressVector{DGID: testAddrA, Native: true, SrcPort: sport}, qa.QPN()))
		want := max(sport, rocev2.UDPPort)
		// What is kept, a duplicate and a notification show nothing.
		a.forge(qa, testAddrB, 60000, rocev2.RCSendOnly, 100)
		a.forge(qa, testAddrB, 60000, rocev2.RCSendOnly, rocev2.MaxPSN)
		a.forge(qa, testAddrB, 60000, rocev2.CNP, 0)
		if own, wide, port := qa.kind(); !own || !wide || port != 0 {
			t.Errorf("at first: own kind %v, wide window %v, port %d", own, wide, port)
		}
		if st := qa.Stats(); st.Kept != 1 {
			t.Errorf("%d packets are kept", st.Kept)
		}
		b.write(qb, a, 8)
		b.waitOK(1)
		if _, _, port := qa.kind(); port != want {
			t.Errorf("the port is %d, want %d", port, want)
		}
		before := qa.Stats()
		a.forge(qa, testAddrB, 60000, rocev2.RCSendOnly, 1)
		a.forge(qa, testAddrB, 60000, rocev2.CNP, 0)
		if st := qa.Stats(); st.RxPackets != before.RxPackets {
			t.Error("a packet from another port reached the queue pair")
		}
		if n := a.dev.Stats().Drops["wrong_source_port"]; n != 2 {
			t.Errorf("%d packets are counted, want 2", n)
		}
		a.forge(qa, testAddrB, want, rocev2.CNP, 0)
		if st := qa.Stats(); st.CNPsReceived != before.CNPsReceived+1 {
			t.Error("a packet from the peer's port did not reach the queue pair")
		}
		a.write(qa, b, 20000)
		b.write(qb, a, 20000)
		a.waitOK(1)
		b.waitOK(1)
	}
}

// What was known of one peer does not hold for the next.
func TestNativeIsForgotten(t *testing.T) {
	t.Parallel()
	a, b := newHosts(t, Config{})
	qa, qb := a.newQP(), b.newQP()
	a.must(a.connectAV(qa, ib.AddressVector{DGID: testAddrB, Native: true}, qb.QPN()))
	b.must(b.connectAV(qb, ib.AddressVector{DGID: testAddrA}, qa.QPN()))
	a.write(qa, b, 8)
	a.waitOK(1)
	if own, wide, port := qa.kind(); !own || !wide || port != rocev2.UDPPort {
		t.Fatalf("own kind %v, wide window %v, port %d", own, wide, port)
	}
	a.must(qa.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
	other := b.newQP()
	a.connect(qa, testAddrB, other.QPN())
	b.must(b.connectAV(other, ib.AddressVector{DGID: testAddrA, SrcPort: 50000}, qa.QPN()))
	a.write(qa, b, 8)
	a.waitOK(1)
	if own, wide, port := qa.kind(); own || wide || port != 0 {
		t.Errorf("the next peer: own kind %v, wide window %v, port %d", own, wide, port)
	}
	a.forge(qa, testAddrB, rocev2.UDPPort, rocev2.RCSendOnly, 5)
	if st := qa.Stats(); st.Kept != 0 {
		t.Error("a packet of a peer of unknown kind is kept")
	}
}

// A queue pair whose peer is on the same device takes no packets from elsewhere
// on the host.
func TestLoopbackPeerHasTheDevicesPort(t *testing.T) {
	t.Parallel()
	a, _ := newHosts(t, Config{Loopback: true})
	q, other := a.newQP(), a.newQP()
	a.must(a.connectAV(q, ib.AddressVector{DGID: testAddrA, SrcPort: 50000}, other.QPN()))
	a.must(a.connectAV(other, ib.AddressVector{DGID: testAddrA, SrcPort: 50001}, q.QPN()))
	a.forge(q, testAddrA, 60000, rocev2.RCSendOnly, 0)
	a.write(q, a, 20000)
	a.waitOK(1)
	if st := q.Stats(); st.Drops[qp.DropRNR] != 0 || a.dev.Stats().Drops["wrong_source_port"] != 1 {
		t.Errorf("drops %v and %v", st.Drops, a.dev.Stats().Drops)
	}
}

// What is behind a gap is given back while nothing else happens.
func TestKeptPacketsAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newHosts(t, Config{})
		qa, qb := a.newQP(), b.newQP()
		a.must(a.connectAV(qa, ib.AddressVector{DGID: testAddrB, Native: true}, qb.QPN()))
		for i := range 100 {
			a.forge(qa, testAddrB, rocev2.UDPPort, rocev2.RCSendOnly, rocev2.PSN(5+i))
		}
		held := func() int {
			s := qa.shard
			s.mu.Lock()
			defer s.mu.Unlock()
			return qa.core.Held()
		}
		if n := held(); n != 100 {
			t.Fatalf("%d packets are kept", n)
		}
		time.Sleep(100 * time.Millisecond) // virtual
		if n := held(); n != 0 {
			t.Errorf("%d packets are kept after 100 ms of silence", n)
		}
	})
}
