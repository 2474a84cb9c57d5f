package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// A peer of which the program says nothing is not taken to be native whatever
// it sends. From the well-known port it gets the wide window once a PSN was
// right, and no packet after a gap is kept.
func TestNativeIsNotGuessed(t *testing.T) {
	t.Parallel()
	a, b := newWorld(t, 1).newPair(Config{})
	qa, _ := connectPair(a, b, false)
	for _, c := range []struct {
		op  rocev2.Opcode
		psn rocev2.PSN
	}{{rocev2.CNP, 0}, {rocev2.RCSendOnly, 5}, {rocev2.RCSendOnly, rocev2.MaxPSN}, {rocev2.RCAcknowledge, 0}} {
		a.forge(qa, b.addr, rocev2.UDPPort, c.op, c.psn)
		if p := qa.Peer(); p != (PeerInfo{}) {
			t.Errorf("after %v with PSN %d: %+v", c.op, c.psn, p)
		}
	}
	a.write(qa, b, 8)
	a.waitOK(1)
	if p := qa.Peer(); p != (PeerInfo{Wide: true}) {
		t.Errorf("after a packet in its turn: %+v", p)
	}
	a.forge(qa, b.addr, rocev2.UDPPort, rocev2.RCSendOnly, 5)
	if st := qa.Core().Stats(); st.Reordered != 0 || st.Drops.OutOfOrder != 2 {
		t.Errorf("%d packets were kept, %d dropped", st.Reordered, st.Drops.OutOfOrder)
	}
}

// A peer that the program says is native sends from one port, which its first
// packet with the right PSN shows.
func TestNativeHasOnePort(t *testing.T) {
	t.Parallel()
	for _, sport := range []uint16{0, 50000} {
		a, b := newWorld(t, 1).newPair(Config{})
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, ib.AddressVector{DGID: b.addr, Native: true}, qb.QPN())
		b.connect(qb, ib.AddressVector{DGID: a.addr, Native: true, SrcPort: sport}, qa.QPN())
		want := max(sport, rocev2.UDPPort)
		// What is kept, a duplicate and a notification show nothing.
		a.forge(qa, b.addr, 60000, rocev2.RCSendOnly, 100)
		a.forge(qa, b.addr, 60000, rocev2.RCSendOnly, rocev2.MaxPSN)
		a.forge(qa, b.addr, 60000, rocev2.CNP, 0)
		if p := qa.Peer(); p != (PeerInfo{Native: true, Wide: true}) {
			t.Errorf("at first: %+v", p)
		}
		if st := qa.Core().Stats(); st.Reordered != 1 {
			t.Errorf("%d packets are kept", st.Reordered)
		}
		b.write(qb, a, 8)
		b.waitOK(1)
		if p := qa.Peer(); p.Port != want {
			t.Errorf("the port is %d, want %d", p.Port, want)
		}
		before := qa.Core().Stats()
		a.forge(qa, b.addr, 60000, rocev2.RCSendOnly, 1)
		a.forge(qa, b.addr, 60000, rocev2.CNP, 0)
		if st := qa.Core().Stats(); st.RxPackets != before.RxPackets {
			t.Error("a packet from another port reached the queue pair")
		}
		if n := a.e.Counters().Device[DropSourcePort]; n != 2 {
			t.Errorf("%d packets are counted, want 2", n)
		}
		a.forge(qa, b.addr, want, rocev2.CNP, 0)
		if st := qa.Core().Stats(); st.CNPsReceived != before.CNPsReceived+1 {
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
	a, b := newWorld(t, 1).newPair(Config{})
	qa, qb := a.newQP(), b.newQP()
	a.connect(qa, ib.AddressVector{DGID: b.addr, Native: true}, qb.QPN())
	b.connect(qb, ib.AddressVector{DGID: a.addr}, qa.QPN())
	a.write(qa, b, 8)
	a.waitOK(1)
	if p := qa.Peer(); p != (PeerInfo{Native: true, Wide: true, Port: rocev2.UDPPort}) {
		t.Fatalf("%+v", p)
	}
	a.modify(qa, ib.Attr{State: ib.StateReset}, ib.AttrState)
	other := b.newQP()
	a.connect(qa, ib.AddressVector{DGID: b.addr}, other.QPN())
	b.connect(other, ib.AddressVector{DGID: a.addr, SrcPort: 50000}, qa.QPN())
	a.write(qa, b, 8)
	a.waitOK(1)
	if p := qa.Peer(); p != (PeerInfo{}) {
		t.Errorf("the next peer: %+v", p)
	}
	a.forge(qa, b.addr, rocev2.UDPPort, rocev2.RCSendOnly, 5)
	if st := qa.Core().Stats(); st.Reordered != 0 {
		t.Error("a packet of a peer of unknown kind is kept")
	}
}

// A queue pair whose peer is on the same engine takes no packets from elsewhere
// on the host.
func TestLoopbackPeerHasTheEnginesPort(t *testing.T) {
	t.Parallel()
	a, _ := newWorld(t, 1).newPair(Config{Loopback: true})
	q, other := a.newQP(), a.newQP()
	a.connect(q, ib.AddressVector{DGID: a.addr, SrcPort: 50000}, other.QPN())
	a.connect(other, ib.AddressVector{DGID: a.addr, SrcPort: 50001}, q.QPN())
	a.forge(q, a.addr, 60000, rocev2.RCSendOnly, 0)
	a.write(q, a, 20000)
	a.waitOK(1)
	if st := q.Core().Stats(); st.Drops.RNR != 0 || a.e.Counters().Device[DropSourcePort] != 1 {
		t.Errorf("drops %v and %v", st.Drops, a.e.Counters().Device)
	}
}

// What is after a gap is given back while nothing else happens.
func TestKeptPacketsAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	qa, qb := a.newQP(), b.newQP()
	a.connect(qa, ib.AddressVector{DGID: b.addr, Native: true}, qb.QPN())
	for i := range 100 {
		a.forge(qa, b.addr, rocev2.UDPPort, rocev2.RCSendOnly, rocev2.PSN(5+i))
	}
	if n := qa.Core().Halves().Held(); n != 100 {
		t.Fatalf("%d packets are kept", n)
	}
	w.sleep(300 * time.Millisecond)
	if n := qa.Core().Halves().Held(); n != 0 {
		t.Errorf("%d packets are kept after 300 ms of silence", n)
	}
}
