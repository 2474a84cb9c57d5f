package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// A queue pair that always has more to send to itself fills one batch, then
// others have their turn, also those whose packets take the link.
func TestLoopbackLeavesOthersTheirTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	h, far := w.newPair(Config{Loopback: true})
	h.held = true
	busy := h.newQP()
	h.connect(busy, ib.AddressVector{DGID: h.addr}, busy.QPN())
	remote := h.connectNobody(far)
	h.write(busy, h, 500000)
	h.write(remote, far, 8)
	for i, want := range []int{0, 1} {
		w.tx.Reset()
		f := h.e.Fill(w.now, w.tx, AllClasses)
		if i == 0 && f.LoopBytes < loopArena/2 || f.LoopPackets == 0 || w.tx.Len() != want {
			t.Errorf("batch %d: %d bytes inside, %d packets to others, want %d", i, f.LoopBytes, w.tx.Len(), want)
		}
	}
	h.held = false
	h.transmit()
	h.waitOK(1)
}

// The limit of a peer holds for the own address too: more queue pairs than it
// admits at once get their turn, and nothing stays in flight. Nothing takes
// time but what waits for a timer.
func TestLoopbackLimits(t *testing.T) {
	t.Parallel()
	const limit, pairs = 16 << 10, 20
	w := newWorld(t, 1)
	h, _ := w.newPair(Config{Loopback: true, Window: qp.WindowConfig{MaxBytes: limit}})
	start := w.now
	for range pairs {
		q, _ := connectPair(h, h, false)
		h.write(q, h, 300000)
	}
	h.waitOK(pairs)
	if u := h.e.Usage(); u.InFlight != 0 || u.Busy != 0 || u.Limited != 0 || u.Peers != 1 || u.QPs != 2*pairs || w.now != start {
		t.Errorf("in the end, after %v: %+v", w.now.Sub(start), u)
	}
	if c := h.e.Counters(); c.LoopPackets == 0 || c.LoopBytes < pairs*300000 {
		t.Errorf("%d packets of %d bytes are counted", c.LoopPackets, c.LoopBytes)
	}
}

// The own address is recognised however it is written.
func TestLoopbackAddresses(t *testing.T) {
	t.Parallel()
	for addr, peer := range map[string]string{
		"192.0.2.1":    "::ffff:192.0.2.1",
		"fe80::1%eth0": "fe80::1",
		"2001:db8::1":  "2001:db8::1",
	} {
		for _, on := range []bool{false, true} {
			c := Config{Addr: netip.MustParseAddr(addr), Loopback: on}
			path := transport.NewPath(c.Addr, transport.Path{Dst: netip.MustParseAddr(peer)})
			if b := newLoopback(&c); (path.Dst == b.addr) != on {
				t.Errorf("%s on %s, loopback %v: recognised %v", peer, addr, on, !on)
			}
		}
	}
}

// Whatever the sizes of packets are, a batch takes what fits and gives it back.
func TestLoopbackBatch(t *testing.T) {
	t.Parallel()
	for _, n := range []int{rocev2.BTHLen, 64, rocev2.MaxPacketLen - rocev2.ICRCLen} {
		b := newLoopback(&Config{Addr: netip.MustParseAddr("192.0.2.1"), Port: rocev2.UDPPort, Loopback: true})
		count := 0
		for room := b.Room(); room != nil; room = b.Room() {
			for i := range room[:n] {
				room[i] = byte(count)
			}
			b.Commit(n, nil, qp.OrdinaryPacket)
			count++
		}
		if count != len(b.all) || count < 15 {
			t.Errorf("%d packets of %d bytes fit", count, n)
		}
		for i := range count {
			p := b.packet(i)
			if len(p.Data) != n+rocev2.ICRCLen || p.Data[0] != byte(i) || p.Data[n-1] != byte(i) || p.ICRC != transport.ICRCVerified {
				t.Fatalf("packet %d of %d: %d bytes", i, count, len(p.Data))
			}
		}
		b.reset()
		if len(b.all) != 0 || b.Room() == nil {
			t.Error("a reset batch is not empty")
		}
	}
}

// Nothing allocates between a post and its completion.
func TestEngineDoesNotAllocate(t *testing.T) { // not parallel: it counts allocations
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		w := newWorld(t, 1)
		h, _ := w.newPair(Config{Loopback: true})
		q, _ := connectPair(h, h, false)
		wrs := []ib.SendWR{{Opcode: op, Signaled: true, SGList: []ib.SGE{h.mr.SGE(0, 100000)},
			Remote: ib.RemoteAddr{Addr: h.mr.Addr(), RKey: h.mr.RKey()}}}
		once := func() {
			_, err := h.e.PostSend(q, wrs)
			w.must(err)
			for h.e.Pending() {
				w.tx.Reset()
				h.e.Fill(w.now, w.tx, AllClasses)
			}
			if len(h.done) != 1 || h.done[0].Status != ib.StatusSuccess {
				t.Fatalf("completions %v", h.done)
			}
			h.done = h.done[:0]
		}
		once()
		if n := testing.AllocsPerRun(100, once); n != 0 {
			t.Errorf("%v allocations for %v", n, op)
		}
	}
}

// Nor do timers that are set anew.
func TestTimersDoNotAllocate(t *testing.T) { // not parallel: it counts allocations
	var ts timers
	q := &QP{}
	q.ref = &timerRef{q}
	now := clock.Time(1)
	once := func() {
		ts.schedule(now, q, now.Add(3*time.Millisecond))
		ts.schedule(now, q, now.Add(time.Millisecond))
		ts.cancel(q)
		now++
	}
	once()
	if n := testing.AllocsPerRun(100, once); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if ts.heap.Len() > 1 || ts.spare.Len() != 0 {
		t.Errorf("%d entries, %d in the spare heap", ts.heap.Len(), ts.spare.Len())
	}
}

// Packets for queue pairs of another shard come back to the driver, from the
// link and from inside.
func TestMisroutedPackets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	h := w.newHost(Config{Loopback: true, Shard: 1, Shards: 4}, 1<<16)
	h.held = true
	q := h.newQP()
	if q.QPN()%4 != 1 {
		t.Fatalf("QPN %v is not of shard 1 of 4", q.QPN())
	}
	other := q.QPN() ^ 2
	h.connect(q, ib.AddressVector{DGID: h.addr}, other)
	h.write(q, h, 3000)
	f := h.e.Fill(w.now, w.tx, AllClasses)
	if f.LoopPackets != 3 || len(f.Misrouted) != 3 || w.tx.Len() != 0 {
		t.Fatalf("%d packets, %d of them for others", f.LoopPackets, len(f.Misrouted))
	}
	for _, d := range f.Misrouted {
		var p rocev2.Packet
		if err := p.Parse(d.Data); err != nil || p.BTH.DestQPN != other || d.Src != h.addr || d.ICRC != transport.ICRCVerified {
			t.Errorf("packet for %v from %v: %v", p.BTH.DestQPN, d.Src, err)
		}
	}
	packets := append([]transport.RxPacket{}, f.Misrouted...)
	if r := h.e.Receive(w.now, packets); len(r.Misrouted) != 3 || r.Requests {
		t.Errorf("received: %+v", r)
	}
	if n := h.e.Counters().Device[DropUnknownQP]; n != 0 {
		t.Errorf("%d are counted as dropped", n)
	}
}
