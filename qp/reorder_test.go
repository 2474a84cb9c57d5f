package qp

import (
	"bytes"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// keepers is a pair that keeps packets in pools of a size.
func keepers(t *testing.T, c pairConfig, packets int) *pair {
	p := newPair(t, c)
	p.a.SetReorder(NewPool(packets))
	p.b.SetReorder(NewPool(packets))
	return p
}

// dropNth loses the nth packets that a side sends, the first being 1.
func (p *pair) dropNth(from *testEnd, nth ...int) {
	n := 0
	p.drop = func(e *testEnd, _ *rocev2.Packet) bool {
		if e != from {
			return false
		}
		n++
		for _, k := range nth {
			if k == n {
				return true
			}
		}
		return false
	}
}

// held counts the packets that the reorder buffers of a pool have.
func held(t *testing.T, s *Pool) int {
	t.Helper()
	n, err := s.Held()
	must(t, err)
	return n
}

// TestRepairCost: a lost packet costs a few, not all that is in flight after
// it, in both directions.
func TestRepairCost(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		p := keepers(t, pairConfig{}, 256)
		if op == ib.OpWrite {
			p.dropNth(p.a, 5)
		} else {
			p.dropNth(p.b, 5)
		}
		must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: op, Signaled: true, SGList: p.a.sge(0, 1<<17), Remote: p.b.remote(0)}))
		p.settle()
		if !bytes.Equal(p.a.mem[:1<<17], p.b.mem[:1<<17]) {
			t.Errorf("%v: wrong data", op)
		}
		a, b := p.a.Stats(), p.b.Stats()
		if a.SendDone != 1 || a.Repairs != 1 || a.Retransmits > repairRun || a.Reordered+b.Reordered < 8 || a.Timeouts+a.Probes > 0 {
			t.Errorf("%v: %d done, %d repairs, %d packets again, %d and %d kept", op, a.SendDone, a.Repairs, a.Retransmits, a.Reordered, b.Reordered)
		}
		if n := b.TxPackets; op == ib.OpRead && n > 128+2*2 {
			t.Errorf("READ: %d responses for 128 packets", n)
		}
		if held(t, p.a.conn.Pool) != 0 || held(t, p.b.conn.Pool) != 0 {
			t.Errorf("%v: packets are held and all is done", op)
		}
	}
}

// TestPoolIsGivenBack: whatever ends a queue pair, its packets go back, and so
// they do when another pool is named.
func TestPoolIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *testEnd){
		"age":   func(e *testEnd) { e.HandleTimeout(clock.Time(keepAge)) },
		"close": func(e *testEnd) { e.Close() },
		"error": func(e *testEnd) { must(t, e.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState)) },
		"reset": func(e *testEnd) { must(t, e.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState)) },
		"pool":  func(e *testEnd) { e.SetReorder(nil) },
	} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			p := keepers(t, pairConfig{}, 64)
			p.drop = func(_ *testEnd, pkt *rocev2.Packet) bool {
				info, _ := pkt.BTH.Opcode.Info()
				return pkt.BTH.PSN == 0xffffff && info.Operation != rocev2.OpReadRequest
			}
			must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: p.a.sge(0, 1<<14), Remote: p.b.remote(0)}))
			p.run()
			keeper := p.b
			if op == ib.OpRead {
				keeper = p.a
			}
			s := keeper.conn.Pool
			if n := held(t, s); n == 0 || n != keeper.halves.Held() {
				t.Fatalf("%v: %d packets are kept, %d in the store", op, keeper.halves.Held(), n)
			}
			end(keeper)
			if n := held(t, s); n != 0 || keeper.halves.Held() != 0 {
				t.Errorf("%v, %s: %d packets are held", op, name, n)
			}
		}
	}
}

// TestPeerIsNativeNoMore: a queue pair that is told so, as with another address
// vector in SQD, repairs losses as with any other peer.
func TestPeerIsNativeNoMore(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		p := keepers(t, pairConfig{config: Config{MinProbe: 1}}, 64)
		for id := range uint64(3) {
			for _, end := range []*testEnd{p.a, p.b} {
				n := 0
				p.drop = func(e *testEnd, _ *rocev2.Packet) bool { n++; return e == end && n == 5 }
				must(t, p.a.PostSend(&ib.SendWR{ID: id, Opcode: op, Signaled: true, SGList: p.a.sge(0, 1<<14), Remote: p.b.remote(0)}))
				if id == 1 && end == p.a { // in the middle
					p.run()
					p.a.SetReorder(nil)
					p.b.SetReorder(nil)
				}
				p.settle()
			}
		}
		if n := p.a.Stats().SendDone; n != 6 || !bytes.Equal(p.a.mem[:1<<14], p.b.mem[:1<<14]) {
			t.Errorf("%v: %d requests are done", op, n)
		}
	}
}

// arrive hands a packet that the peer may never have sent to e.
func (p *pair) arrive(e *testEnd, now clock.Time, pkt rocev2.Packet) Drop {
	from := p.a
	if e == p.a {
		from = p.b
	}
	pkt.BTH.DestQPN, pkt.BTH.PKey = e.QPN(), rocev2.DefaultPKey
	return e.handle(now, from.addr, &pkt)
}

// TestReorderBounds: what is more than 128 past the expected packet or the last
// one that is kept, past what a peer has in flight, more than fits, and what is
// there already is not kept. A READ request counts with all of its PSNs.
func TestReorderBounds(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 5)
	e := p.b.Attr().RQPSN
	read := packet(rocev2.RCReadRequest, 0)
	read.RETH.Length = 100 << 10
	for i, c := range []struct {
		pkt   rocev2.Packet
		ahead int
		want  Drop
	}{
		{packet(rocev2.RCSendOnly, 0), 129, DropOutOfOrder}, {packet(rocev2.RCSendOnly, 0), 5, DropNone},
		{packet(rocev2.RCSendOnly, 0), 5, DropOutOfOrder}, {packet(rocev2.RCSendOnly, 0), 134, DropOutOfOrder},
		{packet(rocev2.RCSendOnly, 0), 133, DropNone}, {packet(rocev2.RCSendOnly, 0), 2, DropNone}, {read, 150, DropNone},
		{packet(rocev2.RCSendOnly, 0), 249 + 129, DropOutOfOrder}, {packet(rocev2.RCSendOnly, 0), 249 + 128, DropNone},
		{packet(rocev2.RCSendOnly, 0), 3, DropOutOfOrder}, // full
		{packet(rocev2.RCSendOnly, 0), MaxReorder + 1, DropOutOfOrder}, {packet(rocev2.RCSendOnly, 0), 1 << 22, DropOutOfOrder},
	} {
		c.pkt.BTH.PSN = e.Add(c.ahead)
		if got := p.arrive(p.b, 0, c.pkt); got != c.want {
			t.Errorf("packet %d, %d ahead: %v, want %v", i, c.ahead, got, c.want)
		}
		checkInvariants(t, p.b)
	}
	if p.b.halves.Held() != 5 || p.b.halves.resp.Check() != nil {
		t.Errorf("%d kept, %v", p.b.halves.Held(), p.b.halves.resp.Check())
	}
	// However many come, what is further ahead than MaxReorder is not kept.
	p = keepers(t, pairConfig{}, 2*MaxReorder)
	for i := range 2 * MaxReorder {
		p.arrive(p.b, 0, packet(rocev2.RCSendOnly, e.Add(1+i)))
	}
	checkInvariants(t, p.b)
	if p.b.halves.Held() != MaxReorder {
		t.Errorf("%d packets are kept", p.b.halves.Held())
	}
}

// TestPoolShares: one queue pair may have the whole pool, but not when others
// need it: then each has its share.
func TestPoolShares(t *testing.T) {
	t.Parallel()
	const packets = 64
	s := NewPool(packets)
	var pairs []*pair
	fill := func(p *pair, n int) {
		for i := range n {
			p.arrive(p.b, 0, packet(rocev2.RCSendOnly, p.b.Attr().RQPSN.Add(1+i)))
		}
	}
	for n := 1; n <= 2*packets; n++ {
		p := newPair(t, pairConfig{})
		p.b.SetReorder(s)
		pairs = append(pairs, p)
		fill(p, 2*packets)
		share := packets / n
		if p.b.halves.Held() < share {
			t.Fatalf("queue pair %d has %d packets, its share is %d", n, p.b.halves.Held(), share)
		}
		sum := 0
		for _, p := range pairs {
			checkInvariants(t, p.b)
			sum += p.b.halves.Held()
			if p.b.halves.Held() < share {
				t.Fatalf("with %d queue pairs one has %d packets, its share is %d", n, p.b.halves.Held(), share)
			}
		}
		if sum > packets || sum != held(t, s) {
			t.Fatalf("%d packets are kept of %d", sum, packets)
		}
	}
	for _, p := range pairs {
		p.b.Close()
	}
	if held(t, s) != 0 {
		t.Error("packets are held by closed queue pairs")
	}
	fill(pairs[0], 1) // in RESET
	p := newPair(t, pairConfig{})
	p.b.SetReorder(s)
	if fill(p, 2*packets); p.b.halves.Held() != packets {
		t.Errorf("alone a queue pair has %d packets of %d", p.b.halves.Held(), packets)
	}
}

// TestForgedPacketCost: one packet that was never sent makes each side ask once
// for what is missing, not with every packet that follows in order.
func TestForgedPacketCost(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 64)
	forged := packet(rocev2.RCSendOnly, p.b.Attr().RQPSN.Add(120))
	if d := p.arrive(p.b, 0, forged); d != DropNone {
		t.Fatal(d)
	}
	for range 100 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
		p.run()
	}
	if a, b := p.a.Stats(), p.b.Stats(); b.NAKSeqSent > 2 || a.Repairs > 1 || a.SendDone != 100 {
		t.Errorf("%d NAKs, %d repairs", b.NAKSeqSent, a.Repairs)
	}

	p = keepers(t, pairConfig{}, 64)
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 1<<17), Remote: p.b.remote(0)}))
	p.transfer(p.a, 1)
	forged = packet(rocev2.RCReadResponseMiddle, p.a.halves.req.Snapshot().Una.Add(120))
	forged.Payload = make([]byte, 1024)
	if d := p.arrive(p.a, 0, forged); d != DropNone {
		t.Fatal(d)
	}
	for range 100 {
		p.transfer(p.b, 1)
		p.transfer(p.a, 1)
	}
	p.settle()
	if a := p.a.Stats(); a.Repairs > 2 || a.Retransmits > 2*repairReads || a.SendDone != 1 {
		t.Errorf("%d repairs, %d requests again", a.Repairs, a.Retransmits)
	}
}

// TestNAKsAreBounded: packets ahead of the expected one cannot make a responder
// send NAKs without end, whatever the peer does.
func TestNAKsAreBounded(t *testing.T) {
	t.Parallel()
	const packets, step = 2000, 10 * time.Microsecond
	for _, store := range []*Pool{nil, NewPool(64)} {
		p := newPair(t, pairConfig{})
		p.b.SetReorder(store)
		for i := range packets {
			p.now = clock.Time(i) * clock.Time(step)
			p.arrive(p.b, p.now, packet(rocev2.RCSendOnly, p.b.Attr().RQPSN.Add(packets-i)))
			p.run()
		}
		most := uint64(maxGapNAKs * (packets*clock.Time(step)/nakPeriod + 1))
		if store != nil {
			most *= 2
		}
		if n := p.b.Stats().NAKSeqSent; n == 0 || n > most {
			t.Errorf("%d NAKs for %d packets in %v, want at most %d", n, packets, packets*step, most)
		}
	}
}

// TestNoAllocationsWithLoss: what is kept again and again takes no more memory.
func TestNoAllocationsWithLoss(t *testing.T) {
	p := benchPair(t, rocev2.MTU1024, 128)
	s := NewPool(256)
	p.a.SetReorder(s)
	p.b.SetReorder(s)
	n := 0
	p.drop = func(*testEnd, *rocev2.Packet) bool { n++; return n%37 == 0 }
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		wr := ib.SendWR{Opcode: op, Signaled: true, SGList: p.a.sge(0, 1<<16), Remote: p.b.remote(0)}
		round := func() {
			must(t, p.a.PostSend(&wr))
			p.settle()
		}
		for range 20 {
			round()
		}
		kept := p.a.Stats().Reordered + p.b.Stats().Reordered
		if got := testing.AllocsPerRun(50, round); got != 0 {
			t.Errorf("%v: %v allocations", op, got)
		}
		if p.a.Stats().Reordered+p.b.Stats().Reordered == kept {
			t.Errorf("%v: nothing was kept", op)
		}
	}
}

// TestAge: what is kept is given back after a while, later where the round trip
// is long, and packets that are younger stay.
func TestAge(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{config: Config{MinProbe: 1}}, 64)
	e := p.b.Attr().RQPSN
	p.arrive(p.b, 0, packet(rocev2.RCSendOnly, e.Add(3)))
	p.arrive(p.b, 10, packet(rocev2.RCSendOnly, e.Add(2)))
	p.arrive(p.b, 20, packet(rocev2.RCSendOnly, e.Add(4)))
	p.arrive(p.b, 30, packet(rocev2.RCSendOnly, e.Add(3))) // makes it no younger
	for _, c := range []struct {
		now  clock.Time
		left int
	}{{clock.Time(keepAge) - 1, 3}, {clock.Time(keepAge), 2}, {clock.Time(keepAge) + 19, 1}, {clock.Time(keepAge) + 20, 0}} {
		if p.b.HandleTimeout(c.now); p.b.halves.Held() != c.left {
			t.Errorf("%d packets are kept at %d, want %d", p.b.halves.Held(), c.now, c.left)
		}
		checkInvariants(t, p.b)
	}
	if p.b.Stats().ReorderDiscarded != 3 {
		t.Errorf("%d are counted as lost", p.b.Stats().ReorderDiscarded)
	}
	p.arrive(p.b, 0, packet(rocev2.RCSendOnly, e.Add(3)))
	for srtt, age := range map[time.Duration]time.Duration{
		time.Microsecond: 64 * time.Millisecond, 100 * time.Millisecond: 400 * time.Millisecond, time.Second: 512 * time.Millisecond,
	} {
		p.b.conn.SRTT = srtt
		if at, ok := p.b.Deadline(); !ok || at != clock.Time(age) {
			t.Errorf("with a round trip of %v the time is %d, %v", srtt, at, ok)
		}
	}
}

// BenchmarkReorder keeps packets at places that jump, as from a path that mixes
// them up.
func BenchmarkReorder(b *testing.B) {
	p := newPair(b, pairConfig{})
	p.b.SetReorder(NewPool(1024))
	e := p.b.Attr().RQPSN
	pkt := packet(rocev2.RCSendOnly, 0)
	pkt.BTH.DestQPN, pkt.BTH.PKey = p.b.QPN(), rocev2.DefaultPKey
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			p.b.halves.resp.DiscardHeld()
		}
		pkt.BTH.PSN = e.Add(1 + (i/128*128+i*37%128)%1024)
		p.b.handle(0, p.a.addr, &pkt)
	}
}
