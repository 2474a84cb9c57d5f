package qp

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// nakAt hands a WRITE without data to b, so far ahead of PSN from, and returns
// how many sequence NAKs b sends for that.
func (p *pair) nakAt(from rocev2.PSN, ahead int, ackReq bool) uint64 {
	before := p.b.Stats().NAKSeqSent
	pkt := packet(rocev2.RCWriteOnly, from.Add(ahead))
	pkt.BTH.AckReq = ackReq
	p.arrive(p.b, p.now, pkt)
	p.transfer(p.b, 10)
	return p.b.Stats().NAKSeqSent - before
}

// Also on a path that does not keep the order, the peer is told of a gap that
// is so large that nothing after it is kept: no selective acknowledgement
// does.
func TestNAKOfLargeGap(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 256)
	e := p.b.Attr().RQPSN
	p.nakAt(e, 2, false)
	p.nakAt(e, 1, false) // late
	p.nakAt(e, 0, false) // late, too
	if got := p.b.halves.resp.ExpectedPSN(); got != e.Add(3) {
		t.Fatalf("PSN %v is expected", got)
	}
	if n := p.nakAt(e, 3+200, false); n != 1 || p.b.halves.Held() != 0 {
		t.Errorf("%d NAKs, and %d packets are kept", n, p.b.halves.Held())
	}
}

// A packet that comes twice is not late: that says nothing of the order.
func TestTwiceIsNotLate(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 256)
	e := p.b.Attr().RQPSN
	p.nakAt(e, 1, false)
	p.nakAt(e, 1, false)
	p.nakAt(e, 0, true) // sent again
	if got := p.b.halves.resp.ExpectedPSN(); got != e.Add(2) {
		t.Fatalf("PSN %v is expected", got)
	}
	if n := p.nakAt(e, 3, false); n == 0 {
		t.Error("another gap gets no NAK at once")
	}
}
