package qp

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// wrapRegion is what a READ of a jump asks for: 2^18 packets of 256 bytes.
const wrapRegion = 1 << 26

// wrapPair is a pair that can jump: its memory is large, and so is the ring, so that what is kept in it survives 64 READs.
func wrapPair(t *testing.T, keep bool) *pair {
	t.Helper()
	c := pairConfig{attr: ib.Attr{PathMTU: rocev2.MTU256, MaxRdAtomic: 128, MaxDestRdAtomic: 128, Timeout: 8, RetryCount: 2},
		mem: 1 << 16}
	var p *pair
	if keep {
		p = keepers(t, c, 64)
	} else {
		p = newPair(t, c)
	}
	p.b.mr = registerAll(t, p.b, make([]byte, wrapRegion)) // not touched but for a packet of each READ
	p.b.mem = nil
	return p
}

func registerAll(t *testing.T, e *testEnd, mem []byte) *memreg.Region {
	t.Helper()
	mr, err := e.table.Register(e.pd, memreg.Local(mem), memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
	must(t, err)
	return mr
}

// jump moves the PSNs of a's requests on by n, as though a had read a lot: b is asked, but only the last packet of each
// answer is sent, and thrown away.
func (p *pair) jump(n uint32) {
	p.t.Helper()
	b, r := p.b, &p.a.req
	if r.una != r.max || r.una != b.resp.epsn {
		p.t.Fatalf("a is at %v to %v, b at %v", r.una, r.max, b.resp.epsn)
	}
	end := r.una.Add(int(n))
	for b.resp.epsn != end {
		step := min(ahead(end, b.resp.epsn), wrapRegion>>8)
		pkt := packet(rocev2.RCReadRequest, b.resp.epsn)
		pkt.RETH = rocev2.RETH{VA: b.mr.Addr(), RKey: uint32(b.mr.RKey()), Length: step << 8}
		if d := p.inject(b, pkt); d != DropNone {
			p.t.Fatalf("READ of %d packets: %v", step, d)
		}
		e := b.resp.out.at(b.resp.out.head)
		e.psn, e.left = e.psn.Add(int(step-1)), 1
		e.start = e.psn
		if b.PollTransmit(p.now, p.buf[:0]) == 0 {
			p.t.Fatal("no answer")
		}
	}
	r.una, r.nxt, r.max = end, end, end
	r.ssn = b.resp.msn // they were messages
}

// fullTurn brings PSNs back to where they were.
func (p *pair) fullTurn() {
	p.jump(1 << 23)
	p.jump(1 << 23)
}

// TestWrapAtomic: the result of an atomic is not replayed for the one that has its PSN 2^24 packets later.
func TestWrapAtomic(t *testing.T) {
	t.Parallel()
	p := wrapPair(t, false)
	post := func() {
		must(t, p.a.PostSend(0, &ib.SendWR{Opcode: ib.OpFetchAdd, CompareAdd: 5, SGList: p.a.sge(0, 8), Remote: p.b.remote(0), Signaled: true}))
	}
	post()
	p.settle()
	p.jump(1<<24 - 1)
	lost := false
	p.drop = func(from *testEnd, _ *rocev2.Packet) bool {
		first := from == p.b && !lost
		lost = lost || first
		return first
	}
	post()
	p.settle()
	got, _ := p.a.mr.Load64(0)
	if s := p.a.sq.statuses(); s != "0 SUCCESS, 0 SUCCESS" || got != 5 || !lost {
		t.Errorf("%q, the second atomic returns %d, not 5", s, got)
	}
}

// TestWrapRead: a WRITE whose acknowledgement was lost is a duplicate of itself, not of the READ that had its PSN 2^24
// packets before; and not a duplicate of anything in the ring elsewhere.
func TestWrapRead(t *testing.T) {
	t.Parallel()
	p := wrapPair(t, false)
	must(t, p.a.PostSend(0, &ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 1000), Remote: p.b.remote(0), Signaled: true}))
	p.settle()
	p.jump(1<<24 - 3) // to the second packet of the READ
	lost := false
	p.drop = func(from *testEnd, _ *rocev2.Packet) bool {
		first := from == p.b && !lost
		lost = lost || first
		return first
	}
	must(t, p.a.PostSend(0, &ib.SendWR{ID: 1, Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0), Signaled: true}))
	p.settle()
	if s := p.a.sq.statuses(); s != "0 SUCCESS, 1 SUCCESS" || !lost {
		t.Errorf("%q", s)
	}
}

// TestWrapLastAck: a WRITE of long ago does not become one behind the duplicate that asks for an acknowledgement, at whatever
// distance.
func TestWrapLastAck(t *testing.T) {
	t.Parallel()
	p := wrapPair(t, false)
	p.b.resp.res.resize(4) // what the ring holds is not looked at further
	must(t, p.a.PostSend(0, &ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0), Signaled: true}))
	p.settle()
	p.jump(1 << 22)
	for range 16 {
		p.jump(1 << 20)
		p.inject(p.b, packet(rocev2.RCWriteOnly, p.b.resp.epsn.Add(-1<<20-100)))
		if l := p.b.PollTransmit(p.now, p.buf[:0]); l > 0 {
			var ack rocev2.Packet
			must(t, ack.Parse(p.buf[:l+rocev2.ICRCLen]))
			t.Errorf("%v %v while %v is expected", ack.BTH.Opcode, ack.BTH.PSN, p.b.resp.epsn)
		}
	}
}

// TestWrapRepair: a repair that ended 2^24 packets ago says nothing about what is acknowledged now.
func TestWrapRepair(t *testing.T) {
	t.Parallel()
	p := wrapPair(t, true)
	write := func(n int) {
		must(t, p.a.PostSend(0, &ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, n), Remote: p.b.remote(0), Signaled: true}))
	}
	p.dropNth(p.a, 1)
	write(20 * 256)
	p.settle()
	run, restarts := p.a.req.repair, p.a.Stats().Restarts
	if p.a.Stats().Repairs == 0 {
		t.Fatal("nothing was repaired")
	}
	p.fullTurn()
	for p.a.req.una != run.end.Add(-1) {
		p.jump(ahead(run.end.Add(-1), p.a.req.una))
	}
	for range 4 {
		write(8)
		p.settle()
	}
	if s := p.a.Stats(); s.Restarts != restarts || p.a.State() != ib.StateRTS {
		t.Errorf("%d restarts without a loss, state %v", s.Restarts-restarts, p.a.State())
	}
}

// TestUnansweredSpan: requests are put off that would make the PSNs between the first unanswered READ and the expected one
// more than 2^23; the READ stays, and the peer gets everything.
func TestUnansweredSpan(t *testing.T) {
	t.Parallel()
	p := wrapPair(t, false)
	b := p.b
	read := func(n uint32) Drop {
		pkt := packet(rocev2.RCReadRequest, b.resp.epsn)
		pkt.RETH = rocev2.RETH{VA: b.mr.Addr(), RKey: uint32(b.mr.RKey()), Length: n}
		return p.inject(b, pkt)
	}
	taken := 0
	for read(wrapRegion) == DropNone {
		if taken++; taken > 100 {
			t.Fatal("no end")
		}
	}
	if taken != 32 { // 2^18 PSNs each
		t.Errorf("%d READs of 64 MiB wait for their answers", taken)
	}
	if e := b.resp.out.at(b.resp.out.tail - 1); b.State() != ib.StateRTR && b.State() != ib.StateRTS || e.kind != responseNAK ||
		e.syndrome != rocev2.NAKSequence || e.psn != b.resp.epsn {
		t.Errorf("state %v, last answer %+v", b.State(), e)
	}
	// The first is answered: there is room for one.
	e := b.resp.out.at(b.resp.out.head)
	e.psn, e.left = e.psn.Add(int(e.left-1)), 1
	b.PollTransmit(p.now, p.buf[:0])
	for taken = 0; read(wrapRegion) == DropNone; taken++ {
	}
	if taken < 1 || taken > ageStep*256/wrapRegion {
		t.Errorf("%d more are taken", taken)
	}
}

// TestLargestRead: the longest message at the smallest MTU takes half of all PSNs, and all of it can be asked for again.
func TestLargestRead(t *testing.T) {
	t.Parallel()
	var r responder
	r.res.resize(4)
	r.out.resize(4)
	for _, first := range []rocev2.PSN{0, 1, 1<<20 - 1, 0xfffffe} {
		r.epsn = first
		if r.busy(1 << 23) {
			t.Fatalf("at %v: refused", first)
		}
		index := r.reserve(resource{kind: resourceRead, psns: 1 << 23})
		r.res.at(index).pending = pendingNone
		for _, at := range []int{0, 1, 1 << 22, 1<<23 - 1} {
			if e, _ := r.res.find(first.Add(at)); e == nil || e.first != first {
				t.Errorf("READ at %v: PSN number %d is not found", first, at)
			}
		}
		for range 1 << 10 { // goes on behind it by 2^21
			if r.busy(1 << 11) {
				t.Fatal("refused")
			}
			r.epsn = r.epsn.Add(1 << 11)
		}
		if e, _ := r.res.find(first.Add(1<<23 - 1)); e == nil {
			t.Errorf("READ at %v: its end was forgotten early", first)
		}
		for range 1 << 12 {
			if r.busy(1 << 11) {
				t.Fatal("refused")
			}
			r.epsn = r.epsn.Add(1 << 11)
		}
		if e, _ := r.res.find(first.Add(1)); e != nil {
			t.Errorf("READ at %v: not forgotten when its PSNs come again", first)
		}
	}
}
