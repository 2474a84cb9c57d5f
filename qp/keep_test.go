package qp

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// keepers is a pair that keeps packets in stores of a size.
func keepers(t *testing.T, c pairConfig, packets int) *pair {
	p := newPair(t, c)
	p.a.KeepPackets(NewStore(packets))
	p.b.KeepPackets(NewStore(packets))
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

// held counts the packets that a store has given away. There are buffers if and only if there are such packets.
func (s *Store) held(t *testing.T) int {
	t.Helper()
	n := s.made
	for k := s.free; k != nil; k = k.next {
		n--
	}
	chained := 0
	for _, k := range s.index {
		for ; k != nil; k = k.next {
			chained++
		}
	}
	if chained != n || (s.buffers > 0) != (n > 0) || (s.ring != nil) != (n > 0) || n > s.limit {
		t.Errorf("%d packets are given away, %d in the index, %d buffers", n, chained, s.buffers)
	}
	return n
}

// TestRepairCost: a lost packet costs a few, not all that is in flight behind it, in both directions.
func TestRepairCost(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		p := keepers(t, pairConfig{}, 256)
		if op == ib.OpWrite {
			p.dropNth(p.a, 5)
		} else {
			p.dropNth(p.b, 5)
		}
		must(t, p.a.PostSend(0, &ib.SendWR{ID: 1, Opcode: op, Signaled: true, SGList: p.a.sge(0, 1<<17), Remote: p.b.remote(0)}))
		p.settle()
		if !bytes.Equal(p.a.mem[:1<<17], p.b.mem[:1<<17]) {
			t.Errorf("%v: wrong data", op)
		}
		a, b := p.a.Stats(), p.b.Stats()
		if a.SendDone != 1 || a.Repairs != 1 || a.Retransmits > repairRun || a.Kept+b.Kept < 8 || a.Timeouts+a.Probes > 0 {
			t.Errorf("%v: %d done, %d repairs, %d packets again, %d and %d kept", op, a.SendDone, a.Repairs, a.Retransmits, a.Kept, b.Kept)
		}
		if n := b.TxPackets; op == ib.OpRead && n > 128+2*2 {
			t.Errorf("READ: %d responses for 128 packets", n)
		}
		if p.a.store.held(t) != 0 || p.b.store.held(t) != 0 {
			t.Errorf("%v: packets are held and all is done", op)
		}
	}
}

// TestStoreIsGivenBack: whatever ends a queue pair, its packets go back, and so they do when another store is named.
func TestStoreIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(e *testEnd){
		"age":   func(e *testEnd) { e.HandleTimeout(clock.Time(keepAge)) },
		"close": func(e *testEnd) { e.Close(0) },
		"error": func(e *testEnd) { must(t, e.Modify(0, &ib.Attr{State: ib.StateErr}, ib.AttrState)) },
		"reset": func(e *testEnd) { must(t, e.Modify(0, &ib.Attr{State: ib.StateReset}, ib.AttrState)) },
		"store": func(e *testEnd) { e.KeepPackets(nil) },
	} {
		for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
			p := keepers(t, pairConfig{}, 64)
			p.drop = func(_ *testEnd, pkt *rocev2.Packet) bool {
				info, _ := pkt.BTH.Opcode.Info()
				return pkt.BTH.PSN == 0xffffff && info.Operation != rocev2.OpReadRequest
			}
			must(t, p.a.PostSend(0, &ib.SendWR{Opcode: op, SGList: p.a.sge(0, 1<<14), Remote: p.b.remote(0)}))
			p.run()
			keeper := p.b
			if op == ib.OpRead {
				keeper = p.a
			}
			s := keeper.store
			if n := s.held(t); n == 0 || n != keeper.Held() {
				t.Fatalf("%v: %d packets are kept, %d in the store", op, keeper.Held(), n)
			}
			end(keeper)
			if n := s.held(t); n != 0 || keeper.Held() != 0 {
				t.Errorf("%v, %s: %d packets are held", op, name, n)
			}
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
	return e.HandlePacket(now, from.addr, &pkt)
}

// TestKeepBounds: what is more than 128 past the expected packet or the last one that is kept, past what a peer has in
// flight, more than fits, and what is there already is not kept. A READ request counts with all of its PSNs.
func TestKeepBounds(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 5)
	e := p.b.resp.epsn
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
	if p.b.Held() != 5 || p.b.resp.kept.first != e.Add(2) {
		t.Errorf("%d kept from %v on", p.b.Held(), p.b.resp.kept.first)
	}
	// However many come, what is further ahead than MaxReorder is not kept.
	p = keepers(t, pairConfig{}, 2*MaxReorder)
	for i := range 2 * MaxReorder {
		p.arrive(p.b, 0, packet(rocev2.RCSendOnly, e.Add(1+i)))
	}
	checkInvariants(t, p.b)
	if p.b.Held() != MaxReorder {
		t.Errorf("%d packets are kept", p.b.Held())
	}
}

// TestReorderBuffer does at random what is done to buffers that share a store, and compares with a map.
func TestReorderBuffer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := NewStore(1 + r.IntN(300))
		type model struct {
			l        kept
			expected rocev2.PSN
			at       map[rocev2.PSN]clock.Time
		}
		models := make([]*model, 1+r.IntN(5))
		for i := range models {
			models[i] = &model{expected: rocev2.PSN(r.Uint32()) & rocev2.PSNMask, at: map[rocev2.PSN]clock.Time{}}
		}
		models[0].expected = rocev2.MaxPSN - 100
		for now := range clock.Time(3000) {
			m := models[r.IntN(len(models))]
			switch r.IntN(20) {
			case 0:
				m.expected = m.expected.Add(r.IntN(300))
			case 1:
				if m.l.reorderBuffer != nil {
					limit := now - clock.Time(r.IntN(500))
					m.l.discardUntil(limit)
					for psn, at := range m.at {
						if at <= limit {
							delete(m.at, psn)
						}
					}
				}
			case 2:
				if m.l.reorderBuffer != nil && m.l.n > 0 {
					delete(m.at, m.l.first)
					m.l.pop()
				}
			default:
				psn := m.expected.Add(1 + r.IntN(MaxReorder))
				if r.IntN(2) == 0 {
					psn = m.expected.Add(1 + r.IntN(50))
				}
				if _, there := m.at[psn]; there {
					break
				}
				if m.l.reorderBuffer == nil {
					m.l.reorderBuffer = s.buffer()
				}
				m.l.discardBefore(m.expected.Next())
				if k := s.take(m.l.reorderBuffer); k != nil {
					k.at, k.psns, k.packet = now, 1, packet(rocev2.RCSendOnly, psn)
					m.l.insert(k)
					m.at[psn] = now
				}
			}
			if m.l.reorderBuffer != nil {
				m.l.discardBefore(m.expected.Next())
			}
			for psn := range m.at {
				if !psn.After(m.expected) {
					delete(m.at, psn)
				}
			}
			m.l.trim()
			for _, o := range models { // what a full store took for another one
				for psn := range o.at {
					if o.l.reorderBuffer == nil || o.l.find(psn) == nil {
						if o == m || s.made < s.limit {
							t.Fatalf("seed %d: PSN %v is gone", seed, psn)
						}
						delete(o.at, psn)
					}
				}
				checkKept(t, o.l, o.expected)
				if o.l.len() != len(o.at) {
					t.Fatalf("seed %d: %d packets, not %d", seed, o.l.len(), len(o.at))
				}
			}
		}
		for _, m := range models {
			m.l.discard()
		}
		if s.held(t) != 0 {
			t.Fatalf("seed %d: packets are left", seed)
		}
	}
}

// TestStoreShares: one queue pair may have the whole store, but not when others need it: then each has its share.
func TestStoreShares(t *testing.T) {
	t.Parallel()
	const packets = 64
	s := NewStore(packets)
	var pairs []*pair
	fill := func(p *pair, n int) {
		for i := range n {
			p.arrive(p.b, 0, packet(rocev2.RCSendOnly, p.b.resp.epsn.Add(1+i)))
		}
	}
	for n := 1; n <= 2*packets; n++ {
		p := newPair(t, pairConfig{})
		p.b.KeepPackets(s)
		pairs = append(pairs, p)
		fill(p, 2*packets)
		share := packets / n
		if p.b.Held() < share {
			t.Fatalf("queue pair %d has %d packets, its share is %d", n, p.b.Held(), share)
		}
		sum := 0
		for _, p := range pairs {
			checkInvariants(t, p.b)
			sum += p.b.Held()
			if p.b.Held() < share {
				t.Fatalf("with %d queue pairs one has %d packets, its share is %d", n, p.b.Held(), share)
			}
		}
		if sum > packets || sum != s.held(t) {
			t.Fatalf("%d packets are kept of %d", sum, packets)
		}
	}
	for _, p := range pairs {
		p.b.Close(0)
	}
	if s.held(t) != 0 {
		t.Error("packets are held by closed queue pairs")
	}
	fill(pairs[0], 1) // in RESET
	p := newPair(t, pairConfig{})
	p.b.KeepPackets(s)
	if fill(p, 2*packets); p.b.Held() != packets {
		t.Errorf("alone a queue pair has %d packets of %d", p.b.Held(), packets)
	}
}

// TestForgedPacketCost: one packet that was never sent makes each side ask once for what is missing, not with every packet
// that follows in order.
func TestForgedPacketCost(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{}, 64)
	forged := packet(rocev2.RCSendOnly, p.b.resp.epsn.Add(120))
	if d := p.arrive(p.b, 0, forged); d != DropNone {
		t.Fatal(d)
	}
	for range 100 {
		must(t, p.a.PostSend(0, &ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}))
		p.run()
	}
	if a, b := p.a.Stats(), p.b.Stats(); b.NAKSeqSent > 2 || a.Repairs > 1 || a.SendDone != 100 {
		t.Errorf("%d NAKs, %d repairs", b.NAKSeqSent, a.Repairs)
	}

	p = keepers(t, pairConfig{}, 64)
	must(t, p.a.PostSend(0, &ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 1<<17), Remote: p.b.remote(0)}))
	p.transfer(p.a, 1)
	forged = packet(rocev2.RCReadResponseMiddle, p.a.req.una.Add(120))
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

// TestNAKsAreBounded: packets ahead of the expected one cannot make a responder send NAKs without end, whoever the peer is.
func TestNAKsAreBounded(t *testing.T) {
	t.Parallel()
	const packets, step = 2000, 10 * time.Microsecond
	for _, store := range []*Store{nil, NewStore(64)} {
		p := newPair(t, pairConfig{})
		p.b.KeepPackets(store)
		for i := range packets {
			p.now = clock.Time(i) * clock.Time(step)
			p.arrive(p.b, p.now, packet(rocev2.RCSendOnly, p.b.resp.epsn.Add(packets-i)))
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
	s := NewStore(256)
	p.a.KeepPackets(s)
	p.b.KeepPackets(s)
	n := 0
	p.drop = func(*testEnd, *rocev2.Packet) bool { n++; return n%37 == 0 }
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		wr := ib.SendWR{Opcode: op, Signaled: true, SGList: p.a.sge(0, 1<<16), Remote: p.b.remote(0)}
		round := func() {
			must(t, p.a.PostSend(p.now, &wr))
			p.settle()
		}
		for range 20 {
			round()
		}
		kept := p.a.Stats().Kept + p.b.Stats().Kept
		if got := testing.AllocsPerRun(50, round); got != 0 {
			t.Errorf("%v: %v allocations", op, got)
		}
		if p.a.Stats().Kept+p.b.Stats().Kept == kept {
			t.Errorf("%v: nothing was kept", op)
		}
	}
}

// TestAge: what is kept is given back after a while, later where the round trip is long, and packets that are younger stay.
func TestAge(t *testing.T) {
	t.Parallel()
	p := keepers(t, pairConfig{config: Config{MinProbe: 1}}, 64)
	e := p.b.resp.epsn
	p.arrive(p.b, 0, packet(rocev2.RCSendOnly, e.Add(3)))
	p.arrive(p.b, 10, packet(rocev2.RCSendOnly, e.Add(2)))
	p.arrive(p.b, 20, packet(rocev2.RCSendOnly, e.Add(4)))
	p.arrive(p.b, 30, packet(rocev2.RCSendOnly, e.Add(3))) // makes it no younger
	for _, c := range []struct {
		now  clock.Time
		left int
	}{{clock.Time(keepAge) - 1, 3}, {clock.Time(keepAge), 2}, {clock.Time(keepAge) + 19, 1}, {clock.Time(keepAge) + 20, 0}} {
		if p.b.HandleTimeout(c.now); p.b.Held() != c.left {
			t.Errorf("%d packets are kept at %d, want %d", p.b.Held(), c.now, c.left)
		}
		checkInvariants(t, p.b)
	}
	if p.b.Stats().KeptLost != 3 {
		t.Errorf("%d are counted as lost", p.b.Stats().KeptLost)
	}
	p.b.req.rtt.known, p.b.req.rtt.smooth = true, keepAge
	p.arrive(p.b, 0, packet(rocev2.RCSendOnly, e.Add(3)))
	if at, ok := p.b.PollTimeout(); !ok || at != clock.Time(keepTrips*keepAge) {
		t.Errorf("with a long round trip the time is %d, %v", at, ok)
	}
}

// BenchmarkKeep keeps packets at places that jump, as from a path that mixes them up.
func BenchmarkKeep(b *testing.B) {
	p := newPair(b, pairConfig{})
	p.b.KeepPackets(NewStore(1024))
	e := p.b.resp.epsn
	pkt := packet(rocev2.RCSendOnly, 0)
	pkt.BTH.DestQPN, pkt.BTH.PKey = p.b.QPN(), rocev2.DefaultPKey
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1024 == 0 {
			p.b.discardKept()
		}
		pkt.BTH.PSN = e.Add(1 + (i/128*128+i*37%128)%1024)
		p.b.HandlePacket(0, p.a.addr, &pkt)
	}
}
