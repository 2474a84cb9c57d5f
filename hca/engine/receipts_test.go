package engine

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// lastAckLost has a send a request to b, whose answer is lost, and returns b's
// queue pair.
func lastAckLost(a, b *host, op ib.Opcode, native bool) *QP {
	a.w.t.Helper()
	qa, qb := connectPair(a, b, native)
	if op == ib.OpSend {
		a.w.must(qb.core.PostRecv(&ib.RecvWR{SGList: []ib.SGE{b.mr.SGE(0, 5000)}}))
	}
	b.held = true
	a.post(qa, op, b, 3000)
	a.w.sleep(a.w.delay + 1)
	if len(b.nextTurns()) != 1 || b.e.Pending() {
		a.w.t.Fatal("nothing was answered")
	}
	b.held = false
	return qb
}

// A program may take its queue pair away when it has what it wanted. If the
// last acknowledgement was lost, its peer still learns that it has.
func TestLastAcknowledgementLost(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*host, *QP){
		"destroyed": (*host).destroy,
		"error":     func(h *host, q *QP) { h.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState) },
		"reset":     func(h *host, q *QP) { h.modify(q, ib.Attr{State: ib.StateReset}, ib.AttrState) },
		"both": func(h *host, q *QP) {
			h.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState)
			h.destroy(q)
		},
	} {
		for _, native := range []bool{false, true} {
			for _, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead} {
				w := newWorld(t, 1)
				a, b := w.newPair(Config{})
				leave(b, lastAckLost(a, b, op, native))
				a.wait(1)
				want := ib.StatusSuccess
				if op == ib.OpRead { // its data has gone with the queue pair
					want = ib.StatusRetryExcErr
				}
				if c := a.done[0]; c.Status != want {
					t.Errorf("%s, native %v, %v: %v", name, native, op, c)
				}
				if b.e.FinalPackets() != 0 {
					t.Errorf("%s: packets are left", name)
				}
			}
		}
	}
}

// Only the peer is answered, and only for what was executed; and a flood of
// copies gets one answer for each batch.
func TestReceiptsAreForThePeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	q := lastAckLost(a, b, ib.OpWrite, false)
	b.destroy(q)
	b.held = true
	ask := func(src netip.Addr, op rocev2.Opcode, psn rocev2.PSN, ackReq bool, times int) int {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(), PSN: psn, AckReq: ackReq}}
		d := transport.RxPacket{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: src, Dst: b.addr,
			SrcPort: 1, ICRC: transport.ICRCVerified}
		var all []transport.RxPacket
		for range times {
			all = append(all, d)
		}
		r := b.e.Receive(w.now, all)
		n := b.e.FinalPackets()
		if r.Urgent != (n > 0) {
			t.Errorf("urgent: %v, with %d packets", r.Urgent, n)
		}
		b.nextTurns()
		return n
	}
	last := rocev2.PSN(2) // three packets, from PSN 0
	for _, c := range []struct {
		what   string
		src    netip.Addr
		op     rocev2.Opcode
		psn    rocev2.PSN
		ackReq bool
		times  int
		want   int
	}{
		{"the last packet", a.addr, rocev2.RCWriteLast, last, true, 1, 1},
		{"the first", a.addr, rocev2.RCWriteFirst, 0, true, 1, 1},
		{"a thousand copies", a.addr, rocev2.RCWriteLast, last, true, 1000, 1},
		{"not asked", a.addr, rocev2.RCWriteLast, last, false, 1, 0},
		{"a new request", a.addr, rocev2.RCWriteOnly, last + 1, true, 1, 0},
		{"a stranger", netip.MustParseAddr("10.9.9.9"), rocev2.RCWriteLast, last, true, 1, 0},
		{"a READ", a.addr, rocev2.RCReadRequest, last, true, 1, 0},
		{"an atomic", a.addr, rocev2.RCFetchAdd, last, true, 1, 0},
		{"an acknowledgement", a.addr, rocev2.RCAcknowledge, last, true, 1, 0},
		{"again", a.addr, rocev2.RCWriteLast, last, true, 1, 1},
	} {
		if n := ask(c.src, c.op, c.psn, c.ackReq, c.times); n != c.want {
			t.Errorf("%s: %d answers, want %d", c.what, n, c.want)
		}
	}
}

// The number of receipts is bounded, and a queue pair that is used again has
// none of its last connection.
func TestReceiptsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	for range maxReceipts + 10 {
		b.destroy(lastAckLost(a, b, ib.OpWrite, false))
		a.waitOK(1)
	}
	if n := len(b.e.finals.receipts.of); n != maxReceipts || len(b.e.finals.receipts.ring) != maxReceipts {
		t.Errorf("%d receipts, %d in the ring", n, len(b.e.finals.receipts.ring))
	}
	q := lastAckLost(a, b, ib.OpWrite, false)
	b.modify(q, ib.Attr{State: ib.StateReset}, ib.AttrState)
	if r := b.e.finals.receipts.of[q.QPN()]; r == nil || r.n == 0 {
		t.Error("no receipt after a reset")
	}
	b.connect(q, ib.AddressVector{DGID: a.addr}, 77)
	if r := b.e.finals.receipts.of[q.QPN()]; r.n != 0 {
		t.Error("the receipt of the last connection is left")
	}
}

// A queue pair that is made ready for another connection answers nothing for
// the last one: the peer may be ahead, and begin at the same PSN. An
// acknowledgement would complete requests that are never executed.
func TestReceiptIsNotForTheNextConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	qa, qb := connectPair(a, b, false)
	a.write(qa, b, 3000)
	a.waitOK(1)
	for _, s := range []struct {
		h *host
		q *QP
	}{{a, qa}, {b, qb}} {
		s.h.modify(s.q, ib.Attr{State: ib.StateReset}, ib.AttrState)
	}
	b.modify(qb, ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess)
	a.connect(qa, ib.AddressVector{DGID: b.addr}, qb.QPN())
	a.write(qa, b, 3000)
	a.w.sleep(4 * a.w.delay)
	if len(a.done) > 0 {
		t.Errorf("%v, and nothing has executed it", a.done[0].Status)
	}
}
