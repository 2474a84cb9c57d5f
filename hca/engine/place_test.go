package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// receive hands packets to the engine, as a link does that places what it can:
// up to four buffers of up to 16 packets, until one is not placed as a whole.
func (h *host) receive(packets []transport.RxPacket) {
	for h.w.places && len(packets) > 0 {
		var runs []transport.PlacedRun
		left := packets
		for range 4 {
			n := min(len(left), 1+h.w.rng.IntN(16))
			run := h.place(left[:n])
			if run.N > 0 {
				runs = append(runs, run)
				left = left[run.N:]
			}
			if run.N < n || len(left) == 0 {
				break
			}
		}
		if r := h.e.Receive(h.w.now, nil, runs...); len(runs) > 0 && !(r.Taken && r.Packets > 0 && r.Requests == anyRequest(runs)) {
			h.w.t.Fatalf("%+v of %d runs in their places", r, len(runs))
		}
		n := min(len(left), 1+h.w.rng.IntN(16))
		h.e.Receive(h.w.now, left[:n])
		packets = left[n:]
		if h.w.look != nil {
			h.w.look()
		}
	}
	if h.w.change != nil {
		packets = h.w.change(h, packets)
	}
	var sum Ready
	for h.w.alone && len(packets) > 0 {
		r := h.e.Receive(h.w.now, packets[:1])
		sum.Packets += r.Packets
		sum.Taken, sum.Requests, sum.Urgent = sum.Taken || r.Taken, sum.Requests || r.Requests, sum.Urgent || r.Urgent
		packets = packets[1:]
	}
	if len(packets) > 0 {
		sum = h.e.Receive(h.w.now, packets)
	}
	if h.w.note != nil {
		h.w.note("%v %v: received %d, taken %v, requests %v, urgent %v", h.w.now, h.addr, sum.Packets, sum.Taken, sum.Requests, sum.Urgent)
	}
}

// place writes the payloads of the first packets of a buffer where they belong.
// After them it writes what a forger has sent, or damaged packets, before the
// link can know.
func (h *host) place(buffer []transport.RxPacket) (run transport.PlacedRun) {
	const rest = rocev2.BTHLen + rocev2.ICRCLen
	first := buffer[0]
	size := len(first.Data) - rest
	if size <= 0 {
		return run
	}
	head := (*[rocev2.BTHLen]byte)(first.Data)
	v, b := h.e.Place(netip.AddrPortFrom(first.Src, first.SrcPort), head, size, len(buffer))
	if len(b) == 0 {
		return run
	}
	defer v.Release()
	want, genuine := *head, len(b)/size-max(0, h.w.rng.IntN(8)-4)
	for i := range len(b) / size {
		p := buffer[i].Data
		binary.BigEndian.PutUint32(want[8:], binary.BigEndian.Uint32(head[8:])+uint32(i))
		if i < genuine && len(p) == len(first.Data) && bytes.Equal(want[:], p[:rocev2.BTHLen]) {
			copy(b[i*size:], p[rocev2.BTHLen:len(p)-rocev2.ICRCLen])
			run.N++
			continue
		}
		genuine = 0
		copy(b[i*size:], bytes.Repeat([]byte{byte(h.w.rng.Uint32())}, size))
	}
	run.First, run.Payload = first, b[:run.N*size]
	if h.w.placed += run.N; run.N > 0 {
		h.w.sorts[rocev2.Opcode(head[0])] = true
	}
	return run
}

// Messages of all kinds arrive as they were sent, with losses and forged
// packets among them. What is outside of the message never changes, at no
// time.
func TestPlaced(t *testing.T) {
	t.Parallel()
	for _, loss := range []float64{0, 0.01} {
		for _, native := range []bool{true, false} {
			t.Run(fmt.Sprintf("loss=%v,native=%v", loss, native), func(t *testing.T) {
				t.Parallel()
				sorts := map[rocev2.Opcode]bool{}
				for seed := range testshort.Rounds[uint64](3) {
					maps.Copy(sorts, testPlaced(t, seed, loss, native))
				}
				if len(sorts) != 2 || !sorts[rocev2.RCWriteMiddle] || !sorts[rocev2.RCReadResponseMiddle] {
					t.Errorf("placed are %v, want WRITEs and READs", sorts)
				}
			})
		}
	}
}

func testPlaced(t *testing.T, seed uint64, loss float64, native bool) map[rocev2.Opcode]bool {
	w := newWorld(t, seed)
	w.places = true
	a, b := w.newPair(Config{})
	qa, qb := connectPair(a, b, native)
	w.loss = loss
	const half = 1 << 19
	for range 12 {
		for i := 0; i < len(a.mem); i += 8 {
			binary.NativeEndian.PutUint64(a.mem[i:], w.rng.Uint64())
			binary.NativeEndian.PutUint64(b.mem[i:], w.rng.Uint64())
		}
		before := bytes.Clone(b.mem)
		n := 1 + w.rng.IntN(300<<10)
		from, to := w.rng.IntN(half-n), half+w.rng.IntN(half-n)
		wr := ib.SendWR{Opcode: []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead}[w.rng.IntN(3)], Signaled: true}
		op, poster, q := wr.Opcode, a, qa
		wr.SGList = []ib.SGE{a.mr.SGE(uint64(from), uint32(n))}
		wr.Remote = ib.RemoteAddr{Addr: b.mr.Addr() + uint64(to), RKey: b.mr.RKey()}
		switch op {
		case ib.OpSend:
			cut := w.rng.IntN(n + 1)
			_, err := b.e.PostRecv(qb, []ib.RecvWR{{SGList: []ib.SGE{b.mr.SGE(uint64(to), uint32(cut)), b.mr.SGE(uint64(to+cut), uint32(n-cut))}}})
			w.must(err)
		case ib.OpRead:
			poster, q = b, qb
			wr.SGList = []ib.SGE{b.mr.SGE(uint64(to), uint32(n))}
			wr.Remote = ib.RemoteAddr{Addr: a.mr.Addr() + uint64(from), RKey: a.mr.RKey()}
		}
		w.look = func() {
			if !bytes.Equal(before[:to], b.mem[:to]) || !bytes.Equal(before[to+n:], b.mem[to+n:]) {
				t.Fatalf("seed %d: %v of %d bytes: something beside it was written", seed, op, n)
			}
		}
		_, err := poster.e.PostSend(q, []ib.SendWR{wr})
		w.must(err)
		poster.transmit()
		poster.waitOK(1)
		if op == ib.OpSend {
			b.waitOK(1)
		}
		copy(before[to:], a.mem[from:from+n])
		if !bytes.Equal(before, b.mem) {
			t.Fatalf("seed %d: %v of %d bytes: not what was sent", seed, op, n)
		}
	}
	if w.placed == 0 {
		t.Errorf("seed %d: nothing was placed", seed)
	}
	return w.sorts
}

// reconnect makes qa and qb what they were when they were new.
func reconnect(a, b *host, qa, qb *QP) {
	for _, e := range []struct {
		h, peer *host
		q, to   *QP
	}{{a, b, qa, qb}, {b, a, qb, qa}} {
		e.h.modify(e.q, ib.Attr{State: ib.StateReset}, ib.AttrState)
		e.h.connect(e.q, ib.AddressVector{DGID: e.peer.addr, Native: true}, e.to.QPN())
	}
}

// middle starts a WRITE of n packets to b, from offset to on, and returns the
// header of the second packet, after the first has arrived.
func middle(t *testing.T, w *world, a, b *host, qa *QP, n, to int) [rocev2.BTHLen]byte {
	t.Helper()
	a.held = true
	_, err := a.e.PostSend(qa, []ib.SendWR{{Opcode: ib.OpWrite, Signaled: true, SGList: []ib.SGE{a.mr.SGE(0, uint32(n)<<10)},
		Remote: ib.RemoteAddr{Addr: b.mr.Addr() + uint64(to), RKey: b.mr.RKey()}}})
	w.must(err)
	w.tx.Reset()
	a.e.Fill(w.now, w.tx, AllClasses)
	first, _ := w.tx.Packet(0)
	second, _ := w.tx.Packet(1)
	b.e.Receive(w.now, []transport.RxPacket{{Data: append(bytes.Clone(first), 0, 0, 0, 0), Src: a.addr, Dst: b.addr,
		SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified}})
	return [rocev2.BTHLen]byte(second)
}

// Only the next packet of the message, from the peer, gets a place, and the
// place ends before the last packet.
func TestPlaceRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	qa, qb := connectPair(a, b, true)
	h := middle(t, w, a, b, qa, 8, 0)
	src := netip.AddrPortFrom(a.addr, rocev2.UDPPort)
	ask := func(src netip.AddrPort, change func(h *[rocev2.BTHLen]byte), size int) int {
		b.e.Receive(w.now, nil) // nothing of what was asked for has come
		h := h
		change(&h)
		v, p := b.e.Place(src, &h, size, 100)
		v.Release()
		return len(p)
	}
	same := func(*[rocev2.BTHLen]byte) {}
	if got := ask(src, same, 1024); got != 6<<10 {
		t.Errorf("%d bytes for the packets between the first and the last of 8, want 6 KiB", got)
	}
	for name, got := range map[string]int{
		"another PSN":     ask(src, func(h *[rocev2.BTHLen]byte) { h[11]++ }, 1024),
		"an earlier PSN":  ask(src, func(h *[rocev2.BTHLen]byte) { h[11]-- }, 1024),
		"another message": ask(src, func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCSendMiddle) }, 1024),
		"a response":      ask(src, func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCReadResponseMiddle) }, 1024),
		"a last packet":   ask(src, func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCWriteLast) }, 1024),
		"a pad":           ask(src, func(h *[rocev2.BTHLen]byte) { h[1] |= 0x10 }, 1024),
		"another QPN":     ask(src, func(h *[rocev2.BTHLen]byte) { h[6] ^= 0xff }, 1024),
		"another size":    ask(src, same, 2048),
		"another host":    ask(netip.AddrPortFrom(addrOf(77), rocev2.UDPPort), same, 1024),
		"another port":    ask(netip.AddrPortFrom(a.addr, 1234), same, 1024),
	} {
		if got != 0 {
			t.Errorf("%s gets a place of %d bytes", name, got)
		}
	}
	// The next buffer of the same batch goes after the first one.
	ask(src, same, 1024)
	h2 := h
	h2[11] += 3
	for range 2 {
		b.e.Receive(w.now, nil)
		v, p := b.e.Place(src, &h, 1024, 3)
		v.Release()
		v2, p2 := b.e.Place(src, &h2, 1024, 100)
		v2.Release()
		if len(p) != 3<<10 || len(p2) != 3<<10 || &p2[0] == &p[0] || &b.mem[1<<10] != &p[0] || &b.mem[4<<10] != &p2[0] {
			t.Errorf("%d and %d bytes for two buffers", len(p), len(p2))
		}
		v, p = b.e.Place(src, &h, 1024, 3)
		v.Release()
		if len(p) != 0 {
			t.Errorf("%d bytes for what is placed already", len(p))
		}
	}
	a.held = false
	a.transmit()
	a.waitOK(1)
	if got := ask(src, same, 1024); got != 0 {
		t.Errorf("a message that is complete gets a place of %d bytes", got)
	}
	b.destroy(qb)
	if got := ask(src, same, 1024); got != 0 {
		t.Errorf("a queue pair that has gone gets a place of %d bytes", got)
	}
}

// What the program does between placing and handling makes a run lost, and
// nothing else: its memory is not looked at.
func TestPlacedTooLate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a, b *host, qa, qb *QP){
		"destroyed":    func(_, b *host, _, q *QP) { b.destroy(q) },
		"in ERR":       func(_, b *host, _, q *QP) { b.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState) },
		"deregistered": func(_, b *host, _, _ *QP) { b.w.must(b.table.Deregister(b.mr)) },
		"shorter now": func(a, b *host, qa, qb *QP) {
			reconnect(a, b, qa, qb)
			middle(t, a.w, a, b, qa, 5, 0)
		},
		"elsewhere now": func(a, b *host, qa, qb *QP) {
			reconnect(a, b, qa, qb)
			middle(t, a.w, a, b, qa, 8, 64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			a, b := w.newPair(Config{})
			qa, qb := connectPair(a, b, true)
			h := middle(t, w, a, b, qa, 8, 0)
			v, p := b.e.Place(netip.AddrPortFrom(a.addr, rocev2.UDPPort), &h, 1024, 4)
			if len(p) != 4<<10 {
				t.Fatalf("a place of %d bytes", len(p))
			}
			v.Release()
			change(a, b, qa, qb)
			before := b.e.counters
			r := b.e.Receive(w.now, nil, transport.PlacedRun{N: 4, Payload: p,
				First: transport.RxPacket{Data: h[:], Src: a.addr, Dst: b.addr, SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified}})
			after := b.e.counters
			if r.Packets != 4 || r.Requests || r.Taken {
				t.Errorf("%+v of 4 packets that come too late", r)
			}
			if lost := total(&after) - total(&before); lost != 4 {
				t.Errorf("%d packets are counted as dropped, want 4", lost)
			}
		})
	}
}

// The marks of the network on packets that were placed count as on others.
func TestPlacedMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.newPair(Config{})
	qa, _ := connectPair(a, b, true)
	h := middle(t, w, a, b, qa, 8, 0)
	v, p := b.e.Place(netip.AddrPortFrom(a.addr, rocev2.UDPPort), &h, 1024, 4)
	v.Release()
	r := b.e.Receive(w.now, nil, transport.PlacedRun{N: len(p) >> 10, Payload: p,
		First: transport.RxPacket{Data: h[:], Src: a.addr, Dst: b.addr, SrcPort: rocev2.UDPPort, TrafficClass: 3, ICRC: transport.ICRCVerified}})
	if got := b.e.QPStats().ECNMarked; got != 4 || !r.Urgent {
		t.Errorf("%d packets are counted as marked, want 4; an answer is urgent: %v", got, r.Urgent)
	}
}

// A run that was placed holds its region no longer than that.
func TestPlacedLetsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.newPair(Config{})
	qa, _ := connectPair(a, b, true)
	h := middle(t, w, a, b, qa, 8, 0)
	v, p := b.e.Place(netip.AddrPortFrom(a.addr, rocev2.UDPPort), &h, 1024, 4)
	v.Release()
	r := b.e.Receive(w.now, nil, transport.PlacedRun{N: len(p) >> 10, Payload: p,
		First: transport.RxPacket{Data: h[:], Src: a.addr, Dst: b.addr, SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified}})
	if !r.Taken || b.e.QPStats().RxPackets != 5 {
		t.Errorf("%+v, %d packets in all", r, b.e.QPStats().RxPackets)
	}
	w.must(b.table.Deregister(b.mr)) // which waits until nothing holds it
}

// total returns how many packets were dropped.
func total(c *Counters) (n uint64) {
	for _, d := range c.Device {
		n += d
	}
	for _, d := range c.QP {
		n += d
	}
	return n
}
