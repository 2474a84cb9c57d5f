package qp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// inject hands b a packet as if from a.
func (p *pair) inject(to *testEnd, pkt rocev2.Packet) Drop {
	pkt.BTH.DestQPN = to.QPN()
	pkt.BTH.PKey = rocev2.DefaultPKey
	return to.handle(p.now, p.peer(to).addr, &pkt)
}

func packet(op rocev2.Opcode, psn rocev2.PSN) rocev2.Packet {
	return rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PSN: psn}}
}

// TestAddressing: what is not for this queue pair is dropped under its name and
// changes nothing (IBTA 9.6).
func TestAddressing(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	good := packet(rocev2.RCWriteOnly, 0xfffffe)
	good.BTH.DestQPN, good.BTH.PKey = p.b.QPN(), 0xffff
	for _, c := range []struct {
		want   Drop
		change func(*rocev2.Packet)
	}{
		{DropQPN, func(p *rocev2.Packet) { p.BTH.DestQPN++ }},
		{DropPKey, func(p *rocev2.Packet) { p.BTH.PKey = 0x8001 }},
		{DropPKey, func(p *rocev2.Packet) { p.BTH.PKey = 0 }},
		{DropService, func(p *rocev2.Packet) { p.BTH.Opcode = rocev2.UCSendOnly }},
		{DropService, func(p *rocev2.Packet) { p.BTH.Opcode = 0x1f }},
		{DropGhost, func(p *rocev2.Packet) { p.BTH.Opcode = rocev2.RCAcknowledge }},
		{DropNone, func(p *rocev2.Packet) {
			p.BTH.PKey, p.BTH.MigReq, p.BTH.Reserved7, p.BTH.FECN = 0x7fff, true, 5, true
		}},
	} {
		pkt := good
		c.change(&pkt)
		if got := p.b.handle(0, p.a.addr, &pkt); got != c.want {
			t.Errorf("%v: got %v, want %v", pkt.BTH, got, c.want)
		}
	}
	if got := p.b.handle(0, p.b.addr, &good); got != DropPeer {
		t.Errorf("from another address: %v", got)
	}
	if s := p.b.Stats(); s.Drops.PKey != 2 || s.RxPackets-s.Drops.Total() != 1 {
		t.Errorf("counted %v", p.b.Stats().Drops)
	}
}

// TestRNRWait: the peer has no receive; the request is sent again after the
// time that the peer gives, until the count is used up on NAK number count+1
// (IBTA 9.7.5.2.8).
func TestRNRWait(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpSend, ib.OpWriteImm} {
		for _, count := range []uint8{0, 1, 6, 7} {
			p := newPair(t, pairConfig{attr: ib.Attr{RNRRetry: 7}})
			p.a.conn.Attr.RNRRetry = count
			p.a.apply(ib.AttrRNRRetry)
			must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: op, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0)}))
			must(t, p.a.PostSend(&ib.SendWR{ID: 2, Opcode: ib.OpWrite, Signaled: true}))
			if count < rnrInfinite {
				p.settle()
				if got := p.a.sq.statuses(); got != "1 RNR_RETRY_EXC_ERR, 2 WR_FLUSH_ERR" {
					t.Errorf("count %d: %q", count, got)
				}
				if n := p.b.Stats().RNRSent; n != uint64(count)+1 {
					t.Errorf("count %d: failed on NAK %d", count, n)
				}
				continue
			}
			for range 50 {
				p.run()
				at, _ := p.a.Deadline()
				if at-p.now != clock.Time(rocev2.RNRDelay(12)) {
					t.Fatalf("waits %d ns", at-p.now)
				}
				p.now = at
				p.a.HandleTimeout(p.now)
			}
			must(t, p.b.PostRecv(&ib.RecvWR{SGList: p.b.sge(4096, 4096)}))
			p.settle()
			if got := p.a.sq.statuses(); got != "2 SUCCESS" {
				t.Errorf("after a receive was posted: %q", got)
			}
		}
	}
}

// TestRNRQuiet: packets after one that met no receive draw no further NAK, and
// one that comes is no reason to send early (IBTA 9.7.5.2.8).
func TestRNRQuiet(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	for range 3 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpSend}))
	}
	p.run()
	if s := p.b.Stats(); s.RNRSent != 1 || s.NAKSeqSent != 0 {
		t.Errorf("%d RNR and %d sequence NAKs sent", s.RNRSent, s.NAKSeqSent)
	}
	nak := packet(rocev2.RCAcknowledge, 0xfffffe)
	nak.AETH.Syndrome = rocev2.NAKSequence
	p.inject(p.a, nak)
	if n := p.transfer(p.a, 1); n != 0 {
		t.Error("a sequence NAK ended the wait")
	}
}

// TestCredits: a peer with few receives is not sent more than it has, but for
// one probe at a time (IBTA 9.7.7.2).
func TestCredits(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.trac = true
	for i := range 4 {
		must(t, p.b.PostRecv(&ib.RecvWR{ID: uint64(i)}))
	}
	for i := range 8 {
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpSend, Signaled: true}))
		if i == 0 {
			p.run() // brings the credits: 3
		}
	}
	p.run()
	if got := p.a.Stats().SendDone; got != 4 {
		t.Errorf("%d sends completed, want 4", got)
	}
	if s := p.b.Stats(); s.RNRSent != 1 || s.Drops.OutOfOrder != 0 {
		t.Errorf("beyond the credits went more than one probe: %d RNR NAKs, %d packets after it", s.RNRSent, s.Drops.OutOfOrder)
	}
	for range 4 {
		must(t, p.b.PostRecv(&ib.RecvWR{}))
	}
	p.settle()
	if got := p.a.Stats().SendDone; got != 8 {
		t.Errorf("%d sends completed, want 8", got)
	}
	checkIdle(t, p.a)
}

// TestImplied: a batch is answered by one acknowledgement, and never across a
// READ (IBTA 9.7.5.1).
func TestImplied(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.trac = true
	for i, op := range []ib.Opcode{ib.OpWrite, ib.OpWrite, ib.OpRead, ib.OpWrite, ib.OpFetchAdd, ib.OpWrite, ib.OpWrite} {
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: op, SGList: p.a.sge(0, 8), Remote: p.b.remote(0), Signaled: true}))
	}
	p.run()
	answers := slices.DeleteFunc(p.log, func(s string) bool { return !strings.Contains(s, "ACK") && !strings.Contains(s, "RESP") })
	want := "[RC_ACKNOWLEDGE 16777215 RC_RDMA_READ_RESPONSE_ONLY 0 RC_ACKNOWLEDGE 1 RC_ATOMIC_ACKNOWLEDGE 2 RC_ACKNOWLEDGE 4]"
	if got := fmt.Sprint(answers); got != want {
		t.Errorf("answers\n%s, want\n%s", got, want)
	}
	checkIdle(t, p.a)
}

// TestReadLimits: never more than max_rd_atomic outstanding, though the window
// would allow more; a fence waits for all (IBTA 9.7.3, 10.8.3.3).
func TestReadLimits(t *testing.T) {
	t.Parallel()
	for _, fence := range []bool{false, true} {
		p := newPair(t, pairConfig{attr: ib.Attr{MaxRdAtomic: 3}})
		for range 10 {
			must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 5000), Remote: p.b.remote(0), Fence: fence}))
		}
		want := 3
		if fence {
			want = 1
		}
		if n := p.transfer(p.a, 100); n != want {
			t.Errorf("fence %v: %d READs outstanding, want %d", fence, n, want)
		}
		p.settle()
		if p.a.Stats().SendDone != 10 {
			t.Error("not done")
		}
	}
}

// TestReadDepth: the responder takes max_dest_rd_atomic rounded up to a power
// of two, and puts off what comes before there is room again. A responder that
// remembers none refuses them as invalid requests (IBTA 9.7.4.1.4).
func TestReadDepth(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{MaxRdAtomic: 8, MaxDestRdAtomic: 3}})
	for i := range 5 {
		pkt := packet(rocev2.RCReadRequest, rocev2.PSN(0xfffffe).Add(i))
		pkt.RETH = rocev2.RETH{VA: testIOVA, RKey: uint32(p.b.mr.RKey()), Length: 8}
		want := DropNone
		if i == 4 {
			want = DropRdAtomic
		}
		if got := p.inject(p.b, pkt); got != want {
			t.Errorf("READ %d: %v, want %v", i, got, want)
		}
	}
	p = newPair(t, pairConfig{})
	p.b.conn.Attr.MaxDestRdAtomic = 0
	p.b.apply(ib.AttrMaxDestRdAtomic)
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, Remote: p.b.remote(0)}))
	p.settle()
	if got := p.a.sq.statuses(); got != "0 REM_INV_REQ_ERR" {
		t.Errorf("at depth 0: %q", got)
	}
}

// TestReadReplay: a READ is answered again from any PSN of its range, also from
// an earlier one than the last replay (IBTA 9.7.5.1.5).
func TestReadReplay(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.trac = true
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 5000), Remote: p.b.remote(0)}))
	p.settle()
	for _, from := range []int{4, 1, 0, 3, 2} {
		p.log = nil
		pkt := packet(rocev2.RCReadRequest, rocev2.PSN(0xfffffe).Add(from))
		pkt.RETH = rocev2.RETH{VA: testIOVA + uint64(from)*1024, RKey: uint32(p.b.mr.RKey()), Length: uint32(5000 - from*1024)}
		if got := p.inject(p.b, pkt); got != DropDuplicate {
			t.Fatal(got)
		}
		p.transfer(p.b, 10)
		first, last := "FIRST", "LAST"
		if from == 4 {
			first, last = "ONLY", "ONLY"
		}
		if n := len(p.log); n != 5-from || !strings.Contains(p.log[0], first) || !strings.Contains(p.log[n-1], last) {
			t.Errorf("from packet %d: %v", from, p.log)
		}
	}
	// A range that was never asked for is not.
	pkt := packet(rocev2.RCReadRequest, 0xfffffe)
	pkt.RETH = rocev2.RETH{VA: testIOVA, RKey: uint32(p.b.mr.RKey()), Length: 5001}
	p.inject(p.b, pkt)
	if p.transfer(p.b, 1) != 0 {
		t.Error("a longer duplicate was answered")
	}
}

// TestDuplicateBeforeAnything: a stale PSN before the first request is dropped,
// not acknowledged with a PSN that the peer may not even have sent, as Linux
// does. A duplicate is acknowledged with the last PSN that was executed (IBTA
// 9.7.5.1.4), and here there is none.
func TestDuplicateBeforeAnything(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	if got := p.inject(p.b, packet(rocev2.RCWriteOnly, 0xfffffd)); got != DropDuplicate {
		t.Error(got)
	}
	if p.transfer(p.b, 1) != 0 {
		t.Error("was answered")
	}
}

// TestDuplicateNotPastRead: a duplicate WRITE before a READ is acknowledged,
// but not past the READ (IBTA 9.7.5.1.4).
func TestDuplicateNotPastRead(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpWrite, ib.OpRead, ib.OpWrite} {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
	}
	p.settle()
	for psn, want := range map[rocev2.PSN]rocev2.PSN{0xfffffe: 0xffffff, 0xffffff: 0xffffff, 1: 1} {
		p.inject(p.b, packet(rocev2.RCWriteOnly, psn))
		n := p.b.poll(0, p.buf)
		must(t, p.pkt.Parse(p.buf[:n+rocev2.ICRCLen]))
		if p.pkt.BTH.Opcode != rocev2.RCAcknowledge || p.pkt.BTH.PSN != want {
			t.Errorf("duplicate %d: %v %d, want ACK %d", psn, p.pkt.BTH.Opcode, p.pkt.BTH.PSN, want)
		}
	}
}

// TestWrongResponses: answers that do not fit never complete anything; the
// retries end in BAD_RESP_ERR (IBTA 9.7.6.1).
func TestWrongResponses(t *testing.T) {
	t.Parallel()
	ack := func(op rocev2.Opcode, syndrome rocev2.Syndrome, n int) rocev2.Packet {
		pkt := packet(op, 0xfffffe)
		pkt.AETH.Syndrome = syndrome
		pkt.Payload = make([]byte, n)
		return pkt
	}
	for _, c := range []struct {
		name string
		op   ib.Opcode
		pkt  rocev2.Packet
	}{
		{"plain ACK for a READ", ib.OpRead, ack(rocev2.RCAcknowledge, 0x1f, 0)},
		{"plain ACK for an atomic", ib.OpFetchAdd, ack(rocev2.RCAcknowledge, 0x1f, 0)},
		{"LAST for FIRST", ib.OpRead, ack(rocev2.RCReadResponseLast, 0x1f, 1024)},
		{"ONLY for FIRST", ib.OpRead, ack(rocev2.RCReadResponseOnly, 0x1f, 1024)},
		{"MIDDLE for FIRST", ib.OpRead, ack(rocev2.RCReadResponseMiddle, 0x1f, 1024)},
		{"short FIRST", ib.OpRead, ack(rocev2.RCReadResponseFirst, 0x1f, 1020)},
		{"long FIRST", ib.OpRead, ack(rocev2.RCReadResponseFirst, 0x1f, 1028)},
		{"RNR in a response", ib.OpRead, ack(rocev2.RCReadResponseFirst, 0x20, 1024)},
		{"reserved syndrome", ib.OpRead, ack(rocev2.RCReadResponseFirst, 0x40, 1024)},
		{"reserved syndrome in an ACK", ib.OpWrite, ack(rocev2.RCAcknowledge, 0x40, 0)},
		{"data for a WRITE", ib.OpWrite, ack(rocev2.RCReadResponseFirst, 0x1f, 1024)},
		{"atomic result for a WRITE", ib.OpWrite, ack(rocev2.RCAtomicAcknowledge, 0x1f, 0)},
		{"data for an atomic", ib.OpFetchAdd, ack(rocev2.RCReadResponseOnly, 0x1f, 8)},
	} {
		p := newPair(t, pairConfig{})
		n := 2500
		if c.op == ib.OpFetchAdd {
			n = 8
		}
		old := slices.Clone(p.a.mem)
		p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
		must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: c.op, SGList: p.a.sge(0, n), Remote: p.b.remote(0)}))
		for range 20 {
			p.run()
			if p.a.State() == ib.StateRTS && p.inject(p.a, c.pkt) != DropBadResponse {
				t.Errorf("%s: was not dropped as a bad response", c.name)
			}
			p.now, _ = p.a.Deadline()
			p.a.HandleTimeout(p.now)
		}
		if got := p.a.sq.statuses(); got != "1 BAD_RESP_ERR" {
			t.Errorf("%s: %q", c.name, got)
		}
		if !slices.Equal(old, p.a.mem) {
			t.Errorf("%s: memory changed", c.name)
		}
	}
}

// TestGhost: an acknowledgement of what was never sent is dropped (IBTA
// 9.7.6.1).
func TestGhost(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite}))
	p.drop = func(*testEnd, *rocev2.Packet) bool { return true }
	p.run()
	pkt := packet(rocev2.RCAcknowledge, 0xffffff)
	pkt.AETH.Syndrome = rocev2.ACKNoCredits
	if got := p.inject(p.a, pkt); got != DropGhost || p.a.Stats().SendDone != 0 {
		t.Errorf("%v, %d done", got, p.a.Stats().SendDone)
	}
}

// TestSequence: packets out of place in their message (IBTA 9.7.4.1).
func TestSequence(t *testing.T) {
	t.Parallel()
	for _, ops := range [][]rocev2.Opcode{
		{rocev2.RCSendMiddle}, {rocev2.RCSendLast}, {rocev2.RCWriteMiddle}, {rocev2.RCWriteLastImm},
		{rocev2.RCSendFirst, rocev2.RCSendFirst}, {rocev2.RCSendFirst, rocev2.RCWriteLast},
		{rocev2.RCSendFirst, rocev2.RCReadRequest}, {rocev2.RCSendFirst, rocev2.RCFetchAdd},
		{rocev2.RCSendFirst, rocev2.RCSendOnly}, {rocev2.RCFlush}, {rocev2.RCAtomicWrite},
	} {
		p := newPair(t, pairConfig{})
		must(t, p.b.PostRecv(&ib.RecvWR{SGList: p.b.sge(0, 4096)}))
		for i, op := range ops {
			pkt := packet(op, rocev2.PSN(0xfffffe).Add(i))
			pkt.Payload = make([]byte, 1024)
			want := DropNone
			if i == len(ops)-1 {
				want = DropInvalid
			}
			if got := p.inject(p.b, pkt); got != want {
				t.Errorf("%v: packet %d: %v, want %v", ops, i, got, want)
			}
		}
		if p.b.halves.resp.Snapshot().Fatal != rocev2.NAKInvalidRequest {
			t.Errorf("%v: NAK %v", ops, p.b.halves.resp.Snapshot().Fatal)
		}
	}
}

// TestLengths: payloads that do not fit their place (IBTA 9.7.4.1.6).
func TestLengths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op      rocev2.Opcode
		payload int
		length  uint32
	}{
		{rocev2.RCSendFirst, 1020, 0}, {rocev2.RCSendFirst, 0, 0}, {rocev2.RCSendOnly, 1028, 0},
		{rocev2.RCWriteFirst, 1024, 1024}, {rocev2.RCWriteFirst, 512, 2048}, {rocev2.RCWriteOnly, 8, 9},
		{rocev2.RCWriteOnly, 8, 7}, {rocev2.RCWriteOnly, 1028, 1028}, {rocev2.RCWriteFirst, 1024, 1<<31 + 1},
		{rocev2.RCReadRequest, 0, 1<<31 + 1},
	} {
		p := newPair(t, pairConfig{})
		must(t, p.b.PostRecv(&ib.RecvWR{SGList: p.b.sge(0, 4096)}))
		old := slices.Clone(p.b.mem)
		pkt := packet(c.op, 0xfffffe)
		pkt.RETH = rocev2.RETH{VA: testIOVA, RKey: uint32(p.b.mr.RKey()), Length: c.length}
		pkt.Payload = make([]byte, c.payload)
		if got := p.inject(p.b, pkt); got != DropInvalid || p.b.halves.resp.Snapshot().Fatal != rocev2.NAKInvalidRequest {
			t.Errorf("%+v: %v, NAK %v", c, got, p.b.halves.resp.Snapshot().Fatal)
		}
		if !slices.Equal(old, p.b.mem) {
			t.Errorf("%+v: memory changed", c)
		}
	}
}

// TestGapNAK: one sequence NAK for a gap however many packets follow it (IBTA
// 9.7.5.1).
func TestGapNAK(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	lost := 0
	p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
		if from == p.a && pkt.BTH.PSN == 0 && lost == 0 {
			lost++
			return true
		}
		return false
	}
	for range 10 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0)}))
	}
	p.run()
	if n := p.b.Stats().NAKSeqSent; n != 1 || p.now != 0 || p.a.Stats().SendDone != 10 {
		t.Errorf("%d NAKs, %d done, after %d ns", n, p.a.Stats().SendDone, p.now)
	}
	if got := p.a.Stats().WindowCuts; got != 1 {
		t.Errorf("the window was cut %d times", got)
	}
}
