package qp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// checkKept checks that what is kept is found in the order of its PSNs, all of it behind the expected one and in reach.
func checkKept(t *testing.T, l kept, expected rocev2.PSN) {
	t.Helper()
	if l.reorderBuffer == nil {
		return
	}
	n := 0
	for k := l.oldest; k != nil; k = k.newer {
		if k.of != l.reorderBuffer || l.find(k.packet.BTH.PSN) != k || k.newer == nil && k != l.newest {
			t.Fatalf("PSN %v is not found", k.packet.BTH.PSN)
		}
		n++
	}
	if n == 0 || n != l.n {
		t.Fatalf("%d packets are kept, not %d", n, l.n)
	}
	psn := l.first
	for range n - 1 {
		psn = l.after(psn)
	}
	if !l.first.After(expected) || psn.Sub(expected) > MaxReorder || l.find(psn) == nil || l.end.Before(psn.Next()) {
		t.Fatalf("PSN %v is expected, %v to %v are kept, up to %v", expected, l.first, psn, l.end)
	}
}

// checkInvariants holds at any moment.
func checkInvariants(t *testing.T, e *testEnd) {
	t.Helper()
	checkKept(t, e.resp.kept, e.resp.epsn)
	checkKept(t, e.req.kept, e.req.una)
	_, aged := e.keptDeadline()
	if aged != (e.Held() > 0) {
		t.Fatalf("%d packets are held, with an age: %v", e.Held(), aged)
	}
	r := &e.req
	order := r.head <= r.cur && r.cur <= r.started && r.started <= r.queue.tail && r.queue.tail-r.head <= r.queue.depth
	psns := ahead(r.nxt, r.una) <= ahead(r.max, r.una) && r.posUna <= r.posNxt
	if !order || !psns {
		t.Fatalf("queue %d %d %d %d, PSNs %d %d %d, position %d %d", r.head, r.cur, r.started, r.queue.tail, r.una, r.nxt, r.max,
			r.posUna, r.posNxt)
	}
	if r.rd > uint32(e.attr.MaxRdAtomic) {
		t.Fatalf("%d READs outstanding of %d", r.rd, e.attr.MaxRdAtomic)
	}
	if inFlight := ahead(r.nxt, r.una); (inFlight == 0) != (r.posUna == r.posNxt) {
		t.Fatalf("%d PSNs and %d bytes in flight", inFlight, r.posNxt-r.posUna)
	}
	if r.una == r.nxt && r.rd != 0 {
		t.Fatalf("%d READs outstanding and nothing in flight", r.rd)
	}
	_, armed := e.PollTimeout()
	if working := r.una != r.nxt || r.rnr.waiting || aged; e.state != ib.StateErr && armed != working {
		t.Fatalf("timer %v, work %v", armed, working)
	}
	if e.state == ib.StateErr && (armed || r.head != r.queue.tail || e.resp.queue.len() != 0) {
		t.Fatal("ERR with a timer or something in a queue")
	}
	if o := &e.resp.out; int(o.tail-o.head) > len(o.ring) {
		t.Fatal("more answers than room")
	}
	completed := uint64(e.sq.n)
	if posted := e.stats.SendPosted; completed > posted {
		t.Fatalf("%d completions of %d sends", completed, posted)
	}
}

// FuzzHandlePacket hands packets to a queue pair with everything under way, in the order of the input: two bytes say how
// far the PSN is from where it would hurt, the rest is a packet. Nothing may panic or break the invariants, and no memory
// outside the region that was granted may change.
func FuzzHandlePacket(f *testing.F) {
	for op := range 0x20 {
		pkt := packet(rocev2.Opcode(op), 0)
		pkt.RETH = rocev2.RETH{VA: testIOVA, RKey: 1, Length: 100}
		pkt.AETH.Syndrome = rocev2.ACKNoCredits
		pkt.Payload = make([]byte, 256)
		f.Add(append([]byte{0, byte(op)}, pkt.AppendTo(nil)...), []byte{1, 0, 0x11, 0, 0, 0})
	}
	cnp := packet(rocev2.CNP, 0)
	f.Add(append([]byte{0, 2}, cnp.AppendTo(nil)...), []byte{})
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p := newPair(t, pairConfig{mem: 1 << 14, attr: ib.Attr{PathMTU: rocev2.MTU256, RNRRetry: 3}})
		if len(first)&1 != 0 {
			p.b.KeepPackets(NewStore(4))
		}
		for i := range 4 {
			must(t, p.b.PostRecv(0, &ib.RecvWR{ID: uint64(i), SGList: p.b.sge(0, 1000)}))
		}
		for _, op := range ib.Opcodes() {
			n := 700
			if op.Is(ib.OpAtomic) {
				n = 8
			}
			must(t, p.b.PostSend(0, &ib.SendWR{Opcode: op, SGList: p.b.sge(8192, n), Remote: p.a.remote(0)}))
		}
		guard := bytes.Clone(p.b.mem[12000:])
		for i, in := range [][]byte{first, second, first, second, second, first} {
			p.transfer(p.b, i)
			fuzzOne(t, p, in)
		}
		p.settle()
		checkInvariants(t, p.a)
		checkInvariants(t, p.b)
		if !bytes.Equal(guard, p.b.mem[12000:]) && p.b.Stats().RxBytes == 0 {
			t.Fatal("memory changed without data")
		}
	})
}

func fuzzOne(t *testing.T, p *pair, in []byte) {
	if len(in) < 2 {
		return
	}
	var pkt rocev2.Packet
	b := append(bytes.Clone(in[2:]), make([]byte, rocev2.ICRCLen)...)
	if pkt.Parse(b[:len(b)&^3]) != nil {
		return
	}
	near := int(int8(in[0]))
	info, _ := pkt.BTH.Opcode.Info()
	if info.Role == rocev2.RoleResponse {
		pkt.BTH.PSN = p.b.req.una.Add(near)
	} else {
		pkt.BTH.PSN = p.b.resp.epsn.Add(near)
	}
	if in[1]&1 != 0 {
		pkt.RETH.RKey, pkt.AtomicETH.RKey = uint32(p.b.mr.RKey()), uint32(p.b.mr.RKey())
		pkt.RETH.VA, pkt.AtomicETH.VA = testIOVA+pkt.RETH.VA&0x1fff, testIOVA+pkt.AtomicETH.VA&0x1fff
	}
	if in[1]&2 != 0 {
		pkt.BTH.DestQPN, pkt.BTH.PKey = p.b.QPN(), rocev2.DefaultPKey
		p.b.HandleMarked(p.now, p.a.addr, &pkt)
	} else {
		p.inject(p.b, pkt)
	}
	checkInvariants(t, p.b)
}

// FuzzAPI plays a sequence of calls, one for each two bytes, on a connected pair.
func FuzzAPI(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 5, 5, 6, 1, 7, 0, 2, 9, 4, 2, 5, 9, 8, 3})
	f.Add([]byte{0, 5, 0, 6, 0, 7, 5, 1, 3, 4, 5, 0, 6, 6, 3, 3, 8, 8})
	f.Fuzz(func(t *testing.T, in []byte) {
		p := newPair(t, pairConfig{mem: 1 << 14, attr: ib.Attr{PathMTU: rocev2.MTU256, RNRRetry: 3}, config: Config{MaxSendWR: 5, MaxRecvWR: 3,
			MaxInline: 32, ReadChunk: 512}})
		for ; len(in) >= 2; in = in[2:] {
			apiCall(t, p, in[0], in[1])
			checkInvariants(t, p.a)
			checkInvariants(t, p.b)
		}
		p.settle()
		checkInvariants(t, p.a)
		checkInvariants(t, p.b)
	})
}

func apiCall(t *testing.T, p *pair, call, arg byte) {
	e := p.a
	if arg&0x80 != 0 {
		e = p.b
	}
	arg &= 0x7f
	switch call % 9 {
	case 0, 1:
		wr := ib.SendWR{Opcode: ib.Opcode(arg % 9), SGList: e.sge(0, int(arg)*20), Remote: p.peer(e).remote(int(arg) * 8),
			Fence: arg&1 != 0, Signaled: arg&2 != 0}
		if call%9 == 1 {
			wr.Inline = e.mem[:arg]
		} else if wr.Opcode.Is(ib.OpAtomic) {
			wr.SGList = e.sge(0, 8)
		}
		if arg == 99 {
			wr.Remote.RKey++
		}
		_ = e.PostSend(p.now, &wr)
	case 2:
		_ = e.PostRecv(p.now, &ib.RecvWR{SGList: e.sge(0, int(arg)*20)})
	case 3:
		if arg == 77 {
			mask := ib.AttrState
			_ = e.Modify(p.now, &ib.Attr{State: ib.StateErr}, mask)
		}
		states := []ib.State{ib.StateSQD, ib.StateRTS, ib.StateSQD}
		_ = e.Modify(p.now, &ib.Attr{State: states[arg%3], EnableSQDNotify: true}, ib.AttrState)
	case 4:
		mask := ib.AttrMask(binary.LittleEndian.Uint32([]byte{arg, arg * 3, arg * 5, 0}))
		_ = e.Modify(p.now, &ib.Attr{State: ib.State(arg % 9), Port: 1}, mask&^ib.AttrState)
	case 5:
		p.transfer(e, int(arg%8))
	case 6:
		lose := int(arg % 4)
		p.drop = func(*testEnd, *rocev2.Packet) bool { lose--; return lose == 0 }
	case 7:
		if at, ok := e.PollTimeout(); ok {
			p.now = max(p.now, at)
		}
		e.HandleTimeout(p.now)
	case 8:
		e.PollEvent()
	}
}
