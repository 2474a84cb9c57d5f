package qp

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// An XRC target sends nothing but answers, and keeps to its rate limit with
// these, until RESET.
func TestXRCTargetKeepsRate(t *testing.T) {
	t.Parallel()
	const burst, size = 4096, 64 << 10
	q, e := newOfType(t, ib.XRCTarget)
	must(t, q.Modify(&ib.Attr{RateLimit: 8000, RateBurst: burst}, ib.AttrRateLimit)) // 1 byte in 1 µs
	if f := FlowOf(q); f.Rate != 8_000_000 {
		t.Errorf("the rate is %d", f.Rate)
	}
	r := e.remote(0)
	read := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.XRCReadRequest, DestQPN: q.QPN(), PKey: 0xffff, PSN: q.Attr().RQPSN},
		XRCETH: rocev2.XRCETH{SRQN: 7}, RETH: rocev2.RETH{VA: r.Addr, RKey: uint32(r.RKey), Length: size}}
	if d := q.HandlePacket(0, &Arrival{Packet: &read, Src: testAddr}); d != DropNone {
		t.Fatal(d)
	}
	var out scratch
	q.Poll(0, Limit{Packets: 1000}, &out)
	if n := onWire(q.Stats()); n > burst+1024+cc.WireOverhead {
		t.Errorf("%d bytes at once", n)
	}
	at, ok := q.Deadline()
	for ; ok && q.Stats().TxBytes < size; at, ok = q.Deadline() {
		q.HandleTimeout(at)
		if n := q.Poll(at, Limit{Packets: 1000}, &out); n.Packets == 0 {
			t.Fatalf("nothing goes at %v", at)
		}
		if n := onWire(q.Stats()); n > uint64(at)/1000+burst+1024+cc.WireOverhead {
			t.Fatalf("%d bytes by %v", n, at)
		}
	}
	if q.Stats().TxBytes != size {
		t.Errorf("it sent %d bytes", q.Stats().TxBytes)
	}
	must(t, q.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
	if f := FlowOf(q); f.Rate != 0 {
		t.Errorf("after RESET the rate is %d", f.Rate)
	}
}
