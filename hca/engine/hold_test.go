package engine

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// numbered makes a queue pair with a number that is held.
func (h *host) numbered(n rocev2.QPN) (*QP, error) {
	return h.e.NewQP(qp.Config{QPN: n, PD: h.pd, SendCQ: h, RecvCQ: h, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}, nil)
}

// What a peer sends to a number that is held is executed when the queue pair
// is there, without being sent again; and nothing is kept afterwards.
func TestHeldNumberWaits(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} { // it comes before the queue pair is made, or before it can receive
		w := newWorld(t, 1)
		a, b := w.newPair(Config{})
		n := b.e.Hold()
		var qb *QP
		create := func() {
			var err error
			qb, err = b.numbered(n)
			w.must(err)
			if qb.QPN() != n || !b.e.AddQP(qb) {
				t.Fatalf("%v is not to be had", n)
			}
		}
		if !early {
			create()
		}
		qa := a.newQP()
		a.connect(qa, ib.AddressVector{DGID: b.addr}, n)
		a.post(qa, ib.OpSend, b, 3000)
		w.sleep(w.delay + 1)
		if !b.e.Heard(n, a.addr, a.psn) || b.e.Heard(n, b.addr, a.psn) || b.e.Heard(n, a.addr, a.psn+100) {
			t.Error("it does not know what it has heard")
		}
		if early {
			create()
		}
		b.connect(qb, ib.AddressVector{DGID: a.addr}, qa.QPN())
		w.must(qb.core.PostRecv(&ib.RecvWR{SGList: []ib.SGE{b.mr.SGE(0, 5000)}}))
		packets := b.e.Kept(n)
		if len(packets) != 3 {
			t.Fatalf("%d packets are kept", len(packets))
		}
		b.e.Receive(w.now, packets)
		b.transmit()
		a.wait(1)
		if c := a.done[0]; c.Status != ib.StatusSuccess {
			t.Error(c)
		}
		if s := qa.Core().Stats(); s.Retransmits != 0 {
			t.Errorf("%d packets were sent again", s.Retransmits)
		}
		if b.e.Holds() != 0 || len(b.e.in.holds.kept) != 0 {
			t.Error("something is held")
		}
	}
}

// Even a queue pair that could receive gets nothing before it is handed over,
// in RTS: a program that answers at once could not send.
func TestHeldNumberWaitsForRTS(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	n := b.e.Hold()
	qa := a.newQP()
	qb, err := b.numbered(n)
	w.must(err)
	if !b.e.AddQP(qb) {
		t.Fatalf("%v is not to be had", n)
	}
	a.connect(qa, ib.AddressVector{DGID: b.addr}, n)
	b.connect(qb, ib.AddressVector{DGID: a.addr}, qa.QPN())
	for range 2 {
		w.must(qb.core.PostRecv(&ib.RecvWR{SGList: []ib.SGE{b.mr.SGE(0, 5000)}}))
	}
	a.post(qa, ib.OpSend, b, 8)
	w.sleep(w.delay + 1)
	if len(b.done) != 0 {
		t.Error("it is received")
	}
	b.e.Receive(w.now, b.e.Kept(n))
	b.transmit()
	a.wait(1)
	a.post(qa, ib.OpSend, b, 8)
	a.wait(2)
	if len(b.done) != 2 || qa.Core().Stats().Retransmits != 0 {
		t.Errorf("%d messages, %d packets were sent again", len(b.done), qa.Core().Stats().Retransmits)
	}
}

// No queue pair gets a number that is held; how much is kept is bounded, for
// each number and in all; and what is released is forgotten.
func TestHoldsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	stranger := b.newQP()
	n := b.e.Hold()
	stranger.qpn = n
	if b.e.AddQP(stranger) {
		t.Error("another queue pair got the number")
	}
	for i := range 100 {
		if i > 0 {
			n = b.e.Hold()
		}
		qa := a.newQP()
		a.connect(qa, ib.AddressVector{DGID: b.addr}, n)
		a.post(qa, ib.OpSend, b, 10<<10)
		w.sleep(w.delay + 1)
		if got := int(b.e.in.holds.of[n]); got != maxKeptOfOne {
			t.Fatalf("%d packets are kept for one number", got)
		}
	}
	if got := len(b.e.in.holds.kept); got != maxKept {
		t.Errorf("%d packets are kept", got)
	}
	sum := 0
	for n, kept := range b.e.in.holds.of {
		sum += int(kept)
		defer b.e.Release(n)
	}
	if sum != maxKept {
		t.Errorf("%d packets are counted", sum)
	}
	for n := range b.e.in.holds.of {
		b.e.Release(n)
	}
	if b.e.in.holds.of != nil || b.e.in.holds.kept != nil {
		t.Error("memory is held")
	}
}

// A host that has many numbers told it, and sends to all of them, does not push
// out what another one has sent.
func TestHoldsAreShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	hostile, b := w.newPair(Config{})
	early := func(from netip.Addr, n rocev2.QPN) bool {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, DestQPN: n, PSN: 7}}
		return b.e.in.holds.keep(&p, &transport.RxPacket{Src: from})
	}
	flood := func() {
		for range 100 {
			n := b.e.Hold()
			for range maxKeptOfOne {
				if !early(hostile.addr, n) {
					t.Fatal("a packet is not kept")
				}
			}
		}
	}
	flood()
	honest, n := netip.MustParseAddr("192.0.2.77"), b.e.Hold()
	if !early(honest, n) {
		t.Fatal("the honest packet is not kept")
	}
	flood()
	if !b.e.Heard(n, honest, 7) || len(b.e.in.holds.kept) != maxKept {
		t.Errorf("it is gone, of %d that are kept", len(b.e.in.holds.kept))
	}
}
