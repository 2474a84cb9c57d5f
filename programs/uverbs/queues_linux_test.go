package uverbs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

func TestSend(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{data: 64})
	b.receive(1000, 1, 2, 3, 4)
	copy(a.p.buf, bytes.Repeat([]byte("data"), 250))
	a.post(fake.SendWR{ID: 10, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{a.p.sge(0, 500), a.p.sge(500, 500)}},
		fake.SendWR{ID: 11, Opcode: fake.SendImm, Imm: 0x01020304, SGE: []ib.SGE{a.p.sge(0, 100)}},
		fake.SendWR{ID: 12, Opcode: fake.Send, Flags: fake.Inline | fake.Signaled | fake.Solicited, Data: []byte("inline")},
		fake.SendWR{ID: 13, Opcode: fake.Send, Flags: fake.Signaled})
	for i, c := range a.cq.expect(ib.StatusSuccess, 10, 12, 13) { // 11 is not signaled
		if want := []uint32{1000, 6, 0}[i]; c.Opcode != ib.WCSend || c.ByteLen != want || c.QPN != uint32(a.qp.QPN()) || c.Port != 1 {
			t.Errorf("completion of %d: %+v", c.ID, c)
		}
	}
	for i, c := range b.cq.expect(ib.StatusSuccess, 1, 2, 3, 4) {
		want := fake.WC{ID: c.ID, Opcode: ib.WCRecv, ByteLen: []uint32{1000, 100, 6, 0}[i], QPN: uint32(b.qp.QPN()), SrcQPN: uint32(a.qp.QPN()), Port: 1}
		if i == 1 {
			want.Flags, want.Imm = fake.WithImm, 0x01020304
		}
		if c != want {
			t.Errorf("receive %d:\n got %+v\nwant %+v", i, c, want)
		}
	}
	if !bytes.Equal(b.p.buf[1000:2000], a.p.buf[:1000]) || string(b.p.buf[3000:3006]) != "inline" {
		t.Error("the data is not what was sent")
	}
	if a.send.Consumer() != 4 || b.recv.Consumer() != 4 {
		t.Errorf("elements given back: %d and %d, not 4", a.send.Consumer(), b.recv.Consumer())
	}
}

func TestRemoteMemory(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{data: 32})
	at, key := b.p.remote(0)
	word := func(p *app, at int) uint64 { return binary.NativeEndian.Uint64(p.buf[at:]) }
	binary.NativeEndian.PutUint64(b.p.buf[8:], 40)
	copy(a.p.buf[4096:], bytes.Repeat([]byte("w"), 3000))
	b.receive(64, 7)
	a.post(
		fake.SendWR{ID: 1, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(4096, 3000)}, Remote: at + 4096, RKey: key},
		fake.SendWR{ID: 2, Opcode: fake.Read, SGE: []ib.SGE{a.p.sge(10000, 3000)}, Remote: at + 4096, RKey: key},
		fake.SendWR{ID: 3, Opcode: fake.FetchAdd, SGE: []ib.SGE{a.p.sge(0, 8)}, Remote: at + 8, RKey: key, CompareAdd: 2},
		fake.SendWR{ID: 4, Opcode: fake.CompareSwap, SGE: []ib.SGE{a.p.sge(16, 8)}, Remote: at + 8, RKey: key, CompareAdd: 42, Swap: 99},
		fake.SendWR{ID: 5, Opcode: fake.WriteImm, Flags: fake.Inline | fake.Fence, Data: []byte("end"), Imm: 77, Remote: at + 64, RKey: key},
		fake.SendWR{ID: 6, Opcode: fake.AtomicWrite, Data: []byte("8 bytes!"), Remote: at + 128, RKey: key},
		fake.SendWR{ID: 7, Opcode: fake.Flush, FlushType: 1, Length: 8, Remote: at + 128, RKey: key, Flags: fake.Signaled})
	if c := a.cq.expect(ib.StatusSuccess, 7)[0]; c.Opcode != ib.WCFlush {
		t.Errorf("%+v", c)
	}
	if c := b.cq.expect(ib.StatusSuccess, 7)[0]; c.Opcode != ib.WCRecvWriteImm || c.Imm != 77 || c.ByteLen != 3 {
		t.Errorf("%+v", c)
	}
	if !bytes.Equal(a.p.buf[10000:13000], bytes.Repeat([]byte("w"), 3000)) || string(b.p.buf[64:67]) != "end" || string(b.p.buf[128:136]) != "8 bytes!" {
		t.Error("the data is not what was written or read")
	}
	if word(a.p, 0) != 40 || word(a.p, 16) != 42 || word(b.p, 8) != 99 {
		t.Errorf("atomics: %d, %d, %d", word(a.p, 0), word(a.p, 16), word(b.p, 8))
	}
}

// A queue that is never signaled goes on, as with the kernel.
func TestNothingSignaled(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{depth: 3})
	at, key := b.p.remote(0)
	for i := range 100 {
		for a.send.Full() {
			runtime.Gosched()
		}
		w := fake.SendWR{ID: uint64(i), Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, 10)}, Remote: at, RKey: key}
		if i == 99 {
			w.Flags = fake.Signaled
		}
		a.post(w)
	}
	a.cq.expect(ib.StatusSuccess, 99)
	a.cq.none()
}

func TestSignalAll(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{all: 1})
	w1, w2 := a.write(1, 0, b.p, 0), a.write(2, 0, b.p, 0)
	w1.Flags, w2.Flags = 0, 0
	a.post(w1, w2)
	a.cq.expect(ib.StatusSuccess, 1, 2)
}

// A region with a window bound to it stays. Windows are bound by requests,
// which say the low byte of the key: the window keeps the rest.
func TestWindows(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{})
	mw := ask[abi.AllocMWResp](b.p, abi.AllocMW, abi.AllocMWReq{PdHandle: b.p.pd, MwType: 2})
	key := mw.Rkey&^0xff | (mw.Rkey+1)&0xff
	addr := b.p.addr(4096)
	b.post(fake.SendWR{ID: 1, Opcode: fake.BindMW, Flags: fake.Signaled, Bind: ib.BindMW{Addr: addr, Length: 4096, Region: ib.Key(b.p.mr.Lkey),
		Window: ib.Key(mw.Rkey), NewKey: ib.Key(^key&^0xff | key&0xff), Access: ib.RemoteWrite | ib.LocalWrite}})
	if c := b.cq.expect(ib.StatusSuccess, 1)[0]; c.Opcode != ib.WCBindMW {
		t.Errorf("%+v", c)
	}
	refused(b.p, abi.EBUSY, abi.DeregMR, abi.DeregMRReq{MrHandle: b.p.mr.MrHandle})
	copy(a.p.buf, "window")
	b.receive(64, 1)
	a.post(fake.SendWR{ID: 2, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, 4096)}, Remote: addr, RKey: key, Flags: fake.Signaled},
		fake.SendWR{ID: 3, Opcode: fake.SendInv, Key: key, Flags: fake.Signaled})
	a.cq.expect(ib.StatusSuccess, 2, 3)
	if got := string(b.p.buf[4096:][:6]); got != "window" {
		t.Errorf("written: %q", got)
	}
	if c := b.cq.expect(ib.StatusSuccess, 1)[0]; c.Flags != fake.WithInv || c.Key != key {
		t.Errorf("%+v", c)
	}
	b.post(fake.SendWR{ID: 4, Opcode: fake.LocalInv, Key: key, Flags: fake.Signaled}) // it has gone
	b.cq.expect(ib.StatusLocQPOpErr, 4)
	tell(b.p, abi.DeallocMW, abi.DeallocMWReq{MwHandle: mw.MwHandle})
	tell(b.p, abi.DeregMR, abi.DeregMRReq{MrHandle: b.p.mr.MrHandle})
}

// What is posted before RTS waits for it. In ERR all is flushed, in order, and
// what comes later too. After RESET the queue pair works again.
func TestStates(t *testing.T) {
	t.Parallel()
	pa, pb := programs(t)
	a, b := pa.newQP(options{depth: 7}), pb.newQP(options{depth: 7})
	write := func(id uint64) fake.SendWR { return a.write(id, 16<<10, pb, 0) }
	for round := range uint64(5) {
		id := 100 * round
		a.init()
		a.send.PostSend(write(id + 1)) // no doorbell rings: the way to RTS looks for them
		a.send.PostSend(write(id + 2))
		a.receive(8, id+11, id+12)
		a.Serve()
		a.cq.none()
		b.reset()
		b.connect(a)
		a.up(b)
		a.cq.expect(ib.StatusSuccess, id+1, id+2)
		a.toErr()
		a.cq.expect(ib.StatusWRFlushErr, id+11, id+12)
		a.post(write(id+3), write(id+4), write(id+5))
		a.cq.expect(ib.StatusWRFlushErr, id+3, id+4, id+5)
		a.post(fake.SendWR{ID: id + 7, Opcode: 99}, write(id+8)) // whatever is wrong with it
		a.cq.expect(ib.StatusWRFlushErr, id+7, id+8)
		a.receive(8, id+13)
		a.Serve()
		a.cq.expect(ib.StatusWRFlushErr, id+13)
		a.reset()
		a.send.PostSend(write(id + 6))
		a.receive(8, id+14)
		a.reset() // and what was posted meanwhile is gone
		a.cq.none()
	}
}

// A queue pair that is reset leaves nothing to poll of the time before, and
// nothing of another one is lost.
func TestResetForgets(t *testing.T) {
	t.Parallel()
	p, _ := programs(t)
	a := p.newQP(options{depth: 7})
	b := p.newQP(options{depth: 7, cq: a.cq})
	for i, q := range []*appQP{a, b} {
		q.init()
		q.receive(8, uint64(10*i+1), uint64(10*i+2))
		q.toErr()
	}
	a.reset()
	for _, c := range a.cq.wait(4) {
		if gone := c.ID < 10; gone != (c.VendorErr == ring.Forgotten) {
			t.Errorf("%+v", c)
		}
	}
}

// The request that fails first completes with its reason, all after it are
// flushed.
func TestFlushOrder(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{})
	at, key := b.p.remote(0)
	a.receive(64, 50, 51)
	a.post(fake.SendWR{ID: 1, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, 64)}, Remote: at, RKey: key},
		fake.SendWR{ID: 2, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, 64)}, Remote: at, RKey: key + 1},
		fake.SendWR{ID: 3, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, 64)}, Remote: at, RKey: key},
		fake.SendWR{ID: 4, Opcode: fake.Write})
	if c := a.cq.expect(ib.StatusRemAccessErr, 2)[0]; c.VendorErr == 0 {
		t.Errorf("%+v", c)
	}
	got := a.cq.wait(4)
	ids := func(recv bool) (ids []uint64) {
		for _, c := range got {
			if c.Status != ib.StatusWRFlushErr {
				t.Errorf("%+v", c)
			}
			if c.ID >= 50 == recv {
				ids = append(ids, c.ID)
			}
		}
		return ids
	}
	if !slices.Equal(ids(false), []uint64{3, 4}) || !slices.Equal(ids(true), []uint64{50, 51}) {
		t.Errorf("%+v", got)
	}
}

// One queue pair does not hold up others: it posts as many as it may.
func TestTurns(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{depth: 63})
	a.Queues.send.mu.Lock() // so nothing else posts
	defer a.Queues.send.mu.Unlock()
	for i := range uint64(40) {
		a.send.PostSend(a.write(i, 0, b.p, 0))
	}
	for _, c := range []struct {
		most  int
		taken uint64
		more  bool
	}{{4, 4, true}, {17, 21, true}, {0, 21, true}, {19, 40, false}, {5, 40, false}} {
		if more := a.Queues.send.drain(c.most); more != c.more || a.Queues.send.ring.Taken() != c.taken {
			t.Errorf("of at most %d: %d are posted, more %v", c.most, a.Queues.send.ring.Taken(), more)
		}
	}
}

// Elements come back before the completion: a program that sees it may post at
// once.
func TestRoomBeforeCompletion(t *testing.T) {
	t.Parallel()
	a, b := pair(t, options{data: 8})
	for _, q := range []*appQP{a, b} {
		of, free := q.send, make(chan uint32, 1)
		if q == b {
			of = q.recv
			b.receive(64, 1)
		}
		q.cq.mu.Lock()
		q.cq.tell = func() { free <- of.Consumer() }
		q.cq.mu.Unlock()
		q.cq.Arm(false)
		if q == b {
			a.post(inline(1))
		} else {
			a.post(a.write(0, 0, b.p, 0))
		}
		if n := <-free; n != 1 {
			t.Errorf("%d elements were free", n)
		}
	}
}

// Programs that name no address handle get one for each vector, and not
// without end.
func TestVectors(t *testing.T) {
	t.Parallel()
	pa, _ := programs(t)
	s := &pa.newQP(options{typ: ib.UD}).Queues.send
	av := func(i int) ib.AddressVector {
		return ib.AddressVector{DGID: netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), HopLimit: 1}
	}
	first := s.handleFor(av(1))
	if first == nil || s.handleFor(av(1)) != first || s.handleFor(av(2)) == first {
		t.Error("equal vectors have one handle")
	}
	if s.handleFor(ib.AddressVector{}) != nil || s.handleFor(ib.AddressVector{DGID: netip.IPv6Loopback()}) != nil {
		t.Error("a vector that is bad has a handle")
	}
	for i := range 3 * maxVectors {
		if s.handleFor(av(i+1)) == nil || len(s.vectors) > maxVectors {
			t.Fatalf("handle %d: there are %d", i, len(s.vectors))
		}
	}
	if first.Vector() != nil {
		t.Error("a handle that was given up is still open")
	}
}
