package engine

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// anyRequest reports whether there are requests among runs.
func anyRequest(runs []transport.PlacedRun) bool {
	return slices.ContainsFunc(runs, func(r transport.PlacedRun) bool { return r.First.Data[0] != byte(rocev2.RCReadResponseMiddle) })
}

// carry hands to the packets from first to last-1 of what from has to send, and
// returns the header of the next one.
func carry(from, to *host, first, last int) (next [rocev2.BTHLen]byte) {
	w := from.w
	for i := first; i < last; i++ {
		p, _ := w.tx.Packet(i)
		to.e.Receive(w.now, []transport.RxPacket{{Data: append(bytes.Clone(p), 0, 0, 0, 0), Src: from.addr, Dst: to.addr,
			SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified}})
	}
	if last < w.tx.Len() {
		p, _ := w.tx.Packet(last)
		copy(next[:], p)
	}
	return next
}

// fill has h encode what it has to send.
func (h *host) fill() {
	h.w.tx.Reset()
	h.e.Fill(h.w.now, h.w.tx, AllClasses)
}

// middleOfRead starts a READ of n packets by b and returns the header of the
// second packet of the answer, after the first has arrived.
func middleOfRead(a, b *host, qb *QP, n int) [rocev2.BTHLen]byte {
	a.held, b.held = true, true
	b.post(qb, ib.OpRead, a, uint32(n)<<10)
	b.fill()
	carry(b, a, 0, 1)
	a.fill()
	return carry(a, b, 0, 1)
}

// atRead asks b where packets from a go, of which the first has the header h
// but for change. It checks that they go to offset at of b's memory, if any of
// them have a place, and returns the length of that.
func atRead(t *testing.T, a, b *host, h [rocev2.BTHLen]byte, at int, change func(h *[rocev2.BTHLen]byte)) int {
	t.Helper()
	b.e.Receive(b.w.now, nil)
	if change != nil {
		change(&h)
	}
	v, p := b.e.Place(netip.AddrPortFrom(a.addr, rocev2.UDPPort), &h, 1024, 100)
	v.Release()
	if len(p) > 0 && &p[0] != &b.mem[at] {
		t.Errorf("a place that is not at %d", at)
	}
	return len(p)
}

// The answer to a READ has a place between its first and its last packet.
func TestPlaceOfRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	_, qb := connectPair(a, b, true)
	check := func(what string, h [rocev2.BTHLen]byte, at, want int) {
		t.Helper()
		if got := atRead(t, a, b, h, at, nil); got != want {
			t.Errorf("%s: a place of %d bytes, want %d", what, got, want)
		}
		for name, change := range map[string]func(h *[rocev2.BTHLen]byte){
			"what was received":  func(h *[rocev2.BTHLen]byte) { h[11]-- },
			"the packet after":   func(h *[rocev2.BTHLen]byte) { h[11]++ },
			"far after":          func(h *[rocev2.BTHLen]byte) { h[9] ^= 0x40 },
			"a WRITE":            func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCWriteMiddle) },
			"a SEND":             func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCSendMiddle) },
			"a first packet":     func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCReadResponseFirst) },
			"a last packet":      func(h *[rocev2.BTHLen]byte) { h[0] = byte(rocev2.RCReadResponseLast) },
			"a packet of UC":     func(h *[rocev2.BTHLen]byte) { h[0] |= 0x20 },
			"another queue pair": func(h *[rocev2.BTHLen]byte) { h[6] ^= 0xff },
		} {
			if got := atRead(t, a, b, h, at, change); got != 0 {
				t.Errorf("%s, %s: a place of %d bytes", what, name, got)
			}
		}
	}
	h := middleOfRead(a, b, qb, 8)
	check("a READ of 8 packets", h, 1<<10, 6<<10)
	h = carry(a, b, 1, 4)
	check("after four", h, 4<<10, 3<<10)
	h = carry(a, b, 4, 7)
	h[0] = byte(rocev2.RCReadResponseMiddle)
	check("the last packet", h, 0, 0)
	carry(a, b, 7, 8)
	b.waitOK(1)
	check("a READ that is complete", h, 0, 0)
}

// Two buffers of one answer go one after the other, and none goes after the
// last packet of the answer, though more READs are under way.
func TestPlaceOfReadsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{ReadChunk: 8 << 10})
	_, qb := connectPair(a, b, true)
	a.held, b.held = true, true
	for range 2 { // of two requests each, so 32 packets
		b.post(qb, ib.OpRead, a, 16<<10)
	}
	b.fill()
	carry(b, a, 0, w.tx.Len())
	a.fill()
	if w.tx.Len() != 32 {
		t.Fatalf("%d packets, want those of two READs", w.tx.Len())
	}
	for first := 0; first < 32; first += 8 {
		h := carry(a, b, first, first)
		h[0] = byte(rocev2.RCReadResponseMiddle)
		if got := atRead(t, a, b, h, 0, nil); got != 0 {
			t.Errorf("packet %d: a place of %d bytes for the first one of an answer", first, got)
		}
		h = carry(a, b, first, first+1)
		at := (first%16 + 1) << 10
		if got := atRead(t, a, b, h, at, nil); got != 6<<10 {
			t.Errorf("packet %d: a place of %d bytes, want that of six packets", first+1, got)
		}
		for _, ahead := range []int{3, 6, 7, 8} {
			b.e.Receive(w.now, nil)
			src := netip.AddrPortFrom(a.addr, rocev2.UDPPort)
			v, p := b.e.Place(src, &h, 1024, ahead)
			v.Release()
			next := h
			next[11] += byte(len(p) >> 10)
			v, p2 := b.e.Place(src, &next, 1024, 100)
			v.Release()
			if want := 6<<10 - len(p); len(p2) != want || want > 0 && &p2[0] != &b.mem[at+len(p)] {
				t.Errorf("packet %d, after %d bytes: a place of %d, want %d", first+1, len(p), len(p2), want)
			}
		}
		carry(a, b, first+1, first+8)
	}
	b.waitOK(2)
}

// While answers are kept after a gap nothing is placed, and an answer that was
// placed before is not placed again when it comes twice.
func TestPlaceOfReadBehindGap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	_, qb := connectPair(a, b, true)
	h := middleOfRead(a, b, qb, 12)
	carry(a, b, 4, 6) // 1, 2 and 3 are missing
	if got := atRead(t, a, b, h, 1<<10, nil); got != 0 {
		t.Errorf("a place of %d bytes before what is kept", got)
	}
	carry(a, b, 1, 4)
	h = carry(a, b, 6, 6)
	if got := atRead(t, a, b, h, 6<<10, nil); got != 5<<10 {
		t.Errorf("a place of %d bytes after what was kept, want 5 KiB", got)
	}
	for i := range 6 {
		again := carry(a, b, i, i)
		again[0] = byte(rocev2.RCReadResponseMiddle)
		if got := atRead(t, a, b, again, 0, nil); got != 0 {
			t.Errorf("packet %d has a place of %d bytes, though it was received", i, got)
		}
	}
	carry(a, b, 6, 12)
	b.waitOK(1)
}

// The place of an answer ends where an entry of the list does, and a packet
// that lies in two has none.
func TestPlaceOfReadInPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	_, qb := connectPair(a, b, true)
	a.held, b.held = true, true
	_, err := b.e.PostSend(qb, []ib.SendWR{{Opcode: ib.OpRead, Signaled: true,
		SGList: []ib.SGE{b.mr.SGE(0, 3500), b.mr.SGE(8<<10, 16<<10-3500)},
		Remote: ib.RemoteAddr{Addr: a.mr.Addr(), RKey: a.mr.RKey()}}})
	w.must(err)
	b.fill()
	carry(b, a, 0, 1)
	a.fill()
	for i := range 16 {
		h := carry(a, b, i, i)
		at, want := 0, 0
		switch {
		case i == 1 || i == 2:
			at, want = i<<10, (3-i)<<10
		case i > 3 && i < 15:
			at, want = 8<<10+i<<10-3500, (15-i)<<10
		}
		if got := atRead(t, a, b, h, at, nil); got != want {
			t.Errorf("packet %d: a place of %d bytes, want %d", i, got, want)
		}
		carry(a, b, i, i+1)
	}
	b.waitOK(1)
}

// What the program does between placing and handling makes a run of an answer
// lost, too.
func TestPlacedReadTooLate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(a, b *host, qa, qb *QP){
		"destroyed":    func(_, b *host, _, q *QP) { b.destroy(q) },
		"in ERR":       func(_, b *host, _, q *QP) { b.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState) },
		"in RESET":     func(_, b *host, _, q *QP) { b.modify(q, ib.Attr{State: ib.StateReset}, ib.AttrState) },
		"deregistered": func(_, b *host, _, _ *QP) { b.w.must(b.table.Deregister(b.mr)) },
		"connected anew": func(a, b *host, qa, qb *QP) {
			reconnect(a, b, qa, qb)
		},
		"in a shorter READ": func(a, b *host, qa, qb *QP) {
			reconnect(a, b, qa, qb)
			middleOfRead(a, b, qb, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			a, b := w.newPair(Config{})
			qa, qb := connectPair(a, b, true)
			h := middleOfRead(a, b, qb, 8)
			v, p := b.e.Place(netip.AddrPortFrom(a.addr, rocev2.UDPPort), &h, 1024, 4)
			if len(p) != 4<<10 {
				t.Fatalf("a place of %d bytes", len(p))
			}
			v.Release()
			change(a, b, qa, qb)
			before, memory := b.e.counters, bytes.Clone(b.mem)
			r := b.e.Receive(w.now, nil, transport.PlacedRun{N: 4, Payload: p,
				First: transport.RxPacket{Data: h[:], Src: a.addr, Dst: b.addr, SrcPort: rocev2.UDPPort, ICRC: transport.ICRCVerified}})
			after := b.e.counters
			if lost := total(&after) - total(&before); r.Packets != 4 || r.Requests || r.Taken || lost != 4 {
				t.Errorf("%+v of 4 packets that come too late, %d dropped", r, lost)
			}
			if !bytes.Equal(memory, b.mem) {
				t.Error("the memory was written")
			}
		})
	}
}

// The marks of the network on an answer that was placed count as on others, and
// what is in its place stays there.
func TestPlacedReadMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.newPair(Config{})
	_, qb := connectPair(a, b, true)
	for i := range a.mem {
		a.mem[i] = byte(w.rng.Uint32())
	}
	h := middleOfRead(a, b, qb, 8)
	v, p := b.e.Place(netip.AddrPortFrom(a.addr, rocev2.UDPPort), &h, 1024, 4)
	copy(p, a.mem[1<<10:])
	v.Release()
	r := b.e.Receive(w.now, nil, transport.PlacedRun{N: 4, Payload: p,
		First: transport.RxPacket{Data: h[:], Src: a.addr, Dst: b.addr, SrcPort: rocev2.UDPPort, TrafficClass: 3, ICRC: transport.ICRCVerified}})
	if got := b.e.QPStats().ECNMarked; got != 4 || !r.Taken || r.Packets != 4 {
		t.Errorf("%+v, %d packets are counted as marked, want 4", r, got)
	}
	a.held, b.held = false, false
	a.transmit()
	b.transmit()
	b.waitOK(1)
	if !bytes.Equal(b.mem[:8<<10], a.mem[:8<<10]) {
		t.Error("not what was read")
	}
}
