package qp

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// checkInvariants holds at any moment.
func checkInvariants(t *testing.T, e *testEnd) {
	t.Helper()
	if err := e.halves.req.Check(); err != nil {
		t.Fatal(err)
	}
	if err := e.halves.resp.Check(); err != nil {
		t.Fatal(err)
	}
	_, timer := e.Deadline()
	_, sends := e.halves.req.Deadline()
	if timer != (sends || e.halves.resp.Held() > 0) {
		t.Fatalf("timer %v; of the requester %v, %d packets are held", timer, sends, e.halves.Held())
	}
	completed := uint64(e.sq.n)
	if posted := e.Stats().SendPosted; completed > posted {
		t.Fatalf("%d completions of %d sends", completed, posted)
	}
}

// FuzzHandlePacket hands packets to a queue pair with everything under way, in
// the order of the input: two bytes say how far the PSN is from where it would
// hurt, the rest is a packet. Nothing may panic or break the invariants, and no
// memory outside the region that was granted may change.
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
			p.b.SetReorder(NewPool(4))
		}
		for i := range 4 {
			must(t, p.b.PostRecv(&ib.RecvWR{ID: uint64(i), SGList: p.b.sge(0, 1000)}))
		}
		for _, op := range wireOps() {
			n := sizeOf(op, 700)
			must(t, p.b.PostSend(&ib.SendWR{Opcode: op, SGList: p.b.sge(8192, n), Remote: p.a.remote(0), FlushType: rocev2.FlushGlobal,
				InvalidateKey: keyFor(p.b, op)}))
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
		pkt.BTH.PSN = p.b.halves.req.Snapshot().Una.Add(near)
	} else {
		pkt.BTH.PSN = p.b.Attr().RQPSN.Add(near)
	}
	if in[1]&1 != 0 {
		pkt.RETH.RKey, pkt.AtomicETH.RKey = uint32(p.b.mr.RKey()), uint32(p.b.mr.RKey())
		pkt.RETH.VA, pkt.AtomicETH.VA = testIOVA+pkt.RETH.VA&0x1fff, testIOVA+pkt.AtomicETH.VA&0x1fff
	}
	if in[1]&2 != 0 {
		pkt.BTH.DestQPN, pkt.BTH.PKey = p.b.QPN(), rocev2.DefaultPKey
		p.b.handleMarked(p.now, p.a.addr, &pkt)
	} else {
		p.inject(p.b, pkt)
	}
	checkInvariants(t, p.b)
}

// FuzzAPI plays a sequence of calls, one for each two bytes, on a connected
// pair.
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
		_ = e.PostSend(&wr)
	case 2:
		_ = e.PostRecv(&ib.RecvWR{SGList: e.sge(0, int(arg)*20)})
	case 3:
		if arg == 77 {
			mask := ib.AttrState
			_ = e.Modify(&ib.Attr{State: ib.StateErr}, mask)
		}
		states := []ib.State{ib.StateSQD, ib.StateRTS, ib.StateSQD}
		_ = e.Modify(&ib.Attr{State: states[arg%3], EnableSQDNotify: true}, ib.AttrState)
	case 4:
		mask := ib.AttrMask(binary.LittleEndian.Uint32([]byte{arg, arg * 3, arg * 5, 0}))
		_ = e.Modify(&ib.Attr{State: ib.State(arg % 9), Port: 1}, mask&^ib.AttrState)
	case 5:
		p.transfer(e, int(arg%8))
	case 6:
		lose := int(arg % 4)
		p.drop = func(*testEnd, *rocev2.Packet) bool { lose--; return lose == 0 }
	case 7:
		if at, ok := e.Deadline(); ok {
			p.now = max(p.now, at)
		}
		e.HandleTimeout(p.now)
	case 8:
		e.PollEvent()
	}
}
