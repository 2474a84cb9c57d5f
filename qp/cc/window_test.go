package cc

import (
	"testing"
	"time"
)

// TestWindow: the window doubles in a round trip until the first loss (RFC 5681
// 3.1), which halves it (RFC 9002 7.3.2). Then it grows by a fixed amount. It
// is never smaller than two packets (RFC 9002 7.2).
func TestWindow(t *testing.T) {
	t.Parallel()
	const packet = 1024 + PacketOverhead
	w := NewWindow(Config{InitialBytes: 8 * packet, MaxBytes: 64 * packet, MaxPSNs: 16})
	if !admits(w, 0, 0, 1<<30, 1<<20) {
		t.Error("a READ larger than the window must go when nothing is in flight")
	}
	if admits(w, 7*packet, 7, packet+1, 1) || !admits(w, 7*packet, 7, packet, 1) {
		t.Error("bytes are not bounded by the size")
	}
	if admits(w, 8*packet, 8, 2*packet, 2) || !admits(w, 7*packet, 7, 2*packet, 2) || admits(w, 7*packet, 7, 58*packet, 2) {
		t.Error("a READ may begin inside the window and end outside, but not beyond the limit")
	}
	if admits(w, 0, 15, packet, 2) || !admits(w, 0, 15, packet, 1) {
		t.Error("PSNs are not bounded by MaxPSNs")
	}
	w.Acked(0, &Flight{Una: 1 << 62}, 8*packet)
	if w.size != 16*packet {
		t.Errorf("after a window was acknowledged the size is %d packets, not doubled", w.size/packet)
	}
	w.Lost(0, &Flight{Next: 16 * packet, Packet: packet}, Timeout)
	if !w.recovering(16*packet-1) || w.recovering(16*packet) {
		t.Error("the loss is overcome before, or not, when all that was in flight is acknowledged")
	}
	if w.size != 8*packet {
		t.Errorf("after a loss the size is %d packets, not halved", w.size/packet)
	}
	for range 8 {
		w.Acked(0, &Flight{Una: 1 << 62}, packet)
	}
	if grown := w.size - 8*packet; grown < growth/2 || grown > growth {
		t.Errorf("after a loss a window acknowledged grew it by %d bytes, not by about %d", grown, growth)
	}
	for range 20 {
		w.Lost(0, &Flight{Next: 0, Packet: packet}, Timeout)
	}
	if w.size != 2*packet {
		t.Errorf("the floor is %d bytes, not two packets", w.size)
	}
	for range 1 << 14 {
		w.Acked(0, &Flight{Una: 1 << 62}, 1<<20)
	}
	if w.size != 64*packet {
		t.Errorf("the size is %d, beyond or below the limit", w.size)
	}
	if got := ackInterval(w, packet); got != 4 {
		t.Errorf("an acknowledgement every %d packets, want a quarter of 16", got)
	}
}

// TestWindowRepairs: single losses that are repaired leave the window alone and
// let more be in flight meanwhile; many of them, or packets in a row, halve it
// once. The losses of one round trip are one congestion event (RFC 9002 7.3.2).
func TestWindowRepairs(t *testing.T) {
	t.Parallel()
	const packet, size = 1024 + PacketOverhead, 128 << 10
	fresh := func() *Window {
		return NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
	}
	w := fresh()
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	if w.size != size || !admits(w, size, 100, packet, 1) || admits(w, size+size/spareShare, 100, packet, 1) {
		t.Errorf("after a single loss the size is %d", w.size)
	}
	if got := charge(w, size+size/spareShare); got != size {
		t.Errorf("a full window and its share are charged as %d bytes", got)
	}
	w.Acked(0, &Flight{Una: size}, size)
	if admits(w, size, 100, packet, 1) || charge(w, size) != size {
		t.Error("more is in flight though the loss is repaired")
	}
	w = fresh()
	for range 3 * burst {
		w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	}
	if w.size != size/2 || w.spare {
		t.Errorf("after many losses in a window the size is %d", w.size)
	}
	w = fresh()
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, RepairedRow)
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, RepairedRow)
	if w.size != size/2 || w.spare {
		t.Errorf("after losses in a row the size is %d", w.size)
	}
}

// TestWindowCongestion: a notification makes the window smaller once for what
// is in flight, together with losses in it, which then are no noise. One window
// answers to marks once (RFC 3168 6.1.2), and by less than to a loss (RFC
// 8511).
func TestWindowCongestion(t *testing.T) {
	t.Parallel()
	const packet, size = 1024 + PacketOverhead, 128 << 10
	fresh := func() *Window {
		return NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
	}
	check := func(what string, w *Window, want int) {
		t.Helper()
		if w.size != want {
			t.Errorf("%s: the size is %d, want %d", what, w.size, want)
		}
	}
	w := fresh()
	if !w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified) || w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified) || w.Marked(0, &Flight{Una: size, Next: size, Packet: packet}, Notified) {
		t.Error("not one cut for what is in flight")
	}
	check("one cut", w, size/4*3)
	w.Acked(0, &Flight{Una: size}, size)
	if n := w.size - size/4*3; n < growth/2 || n > growth {
		t.Errorf("a window acknowledged grew it by %d", n)
	}
	if !w.Marked(0, &Flight{Una: size + packet, Next: 2 * size, Packet: packet}, Notified) {
		t.Error("no cut for what was sent after the first")
	}
	for place := uint64(2 * size); place < 100*size; place += size {
		w.Marked(0, &Flight{Una: place + 1, Next: place + 1, Packet: packet}, Notified)
	}
	check("many cuts", w, 2*packet)

	w = fresh()
	w.Lost(0, &Flight{Next: size, Packet: packet}, Timeout)
	w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified)
	check("in the window of a loss", w, size/2)

	w = fresh()
	w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified)
	w.Lost(0, &Flight{Next: size, Packet: packet}, GoBack)
	check("and a loss in its window", w, size/2)

	w = fresh()
	w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified)
	for range 2 * burst {
		w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	}
	check("and a burst in its window", w, size/2)

	w = fresh()
	w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified)
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	check("and two losses", w, size/2)
	if w.spare {
		t.Error("a loss after a mark is taken for noise")
	}

	w = fresh()
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified)
	w.Lost(0, &Flight{Una: 0, Next: size, Packet: packet}, Repaired)
	check("between two losses", w, size/2)
	if w.spare {
		t.Error("a loss before a mark is taken for noise still")
	}

	w = fresh()
	w.size = size / 2 // and it doubles
	w.Marked(0, &Flight{Una: 0, Next: size, Packet: packet}, Notified)
	check("while it doubles", w, size/4)
}

func admits(w *Window, inFlight uint64, inFlightPSNs uint32, cost uint64, psns uint32) bool {
	l := w.Limit()
	return l.Admits(inFlight, inFlightPSNs, cost, psns)
}

func charge(w *Window, inFlight int) int {
	l := w.Limit()
	return l.Charge(inFlight)
}

func ackInterval(w *Window, packet int) uint32 {
	l := w.Limit()
	return l.AckInterval(packet)
}

// TestWindowTellsNoiseFromCongestion: losses that are repaired one by one cut
// the window where the round trip shows a queue, and not where it shows none,
// unless they are many; then the deeper the more they are.
func TestWindowTellsNoiseFromCongestion(t *testing.T) {
	t.Parallel()
	const packet, size = 1024 + PacketOverhead, 128 << 10
	const base = 10 * time.Millisecond
	for _, c := range []struct {
		why      string
		rtt, dev time.Duration
		losses   int
		want     int
	}{
		{"no queue", base + base/8, 0, 5, size},
		{"no queue, but every tenth packet", base, 0, size / packet / 10, size / 8 * 7},
		{"a queue, and chance", 2 * base, 0, 1, size},
		{"a queue", 2 * base, 0, 2, size / 10 * 7},
		{"a queue, once for a window", 2 * base, 0, 5, size / 10 * 7},
		{"a queue, and most packets", 2 * base, 0, size / packet, size / 2},
		{"a host that was busy, perhaps", 2 * base, base, 2, size / 8 * 7},
		{"many packets", 2 * base, base, 10, size/8*7 - 2*packet},
		{"no round trip is known", 0, 0, 10, size/8*7 - 2*packet},
	} {
		w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
		for range c.losses {
			w.Lost(0, &Flight{Next: size, Packet: packet, RTT: c.rtt, MinRTT: min(base, c.rtt), RTTVar: c.dev}, Selective)
		}
		if w.size != c.want {
			t.Errorf("%s: the size is %d, want %d", c.why, w.size, c.want)
		}
	}
	w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
	w.Lost(0, &Flight{Next: size, Packet: packet, RTT: base, MinRTT: base}, GoBack)
	if w.size != size/8*7 {
		t.Errorf("going back on a long path without a queue: the size is %d", w.size)
	}
}

// TestWindowTrial: losses without a queue halve the window for some rounds, now
// and then. It stays small only if that makes the round trip shorter than any
// before: then it had a queue in it from the beginning.
func TestWindowTrial(t *testing.T) {
	t.Parallel()
	const packet, size, base = 1024 + PacketOverhead, 128 << 10, 10 * time.Millisecond
	for _, c := range []struct {
		then time.Duration
		want func(int) bool
	}{
		{base, func(n int) bool { return n == size }},
		{base / 2, func(n int) bool { return n >= size/2 && n <= size/8*5 }},
	} {
		w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
		f := Flight{Next: size, Packet: packet, RTT: base, MinRTT: base}
		lose := func() {
			w.Lost(0, &f, Selective)
			w.Lost(0, &f, Selective)
		}
		lose()
		if w.size != size {
			t.Errorf("a trial at the beginning: %d bytes", w.size)
		}
		for range trialEvery + 1 {
			w.Acked(0, &f, size)
		}
		lose()
		if w.size != size/2 {
			t.Errorf("no trial: %d bytes", w.size)
		}
		w.Acked(0, &f, size)
		w.Acked(0, &f, size/2)
		if w.size != size/2 {
			t.Errorf("it grows in a trial: %d bytes", w.size)
		}
		f.RTT, f.MinRTT = c.then, c.then
		w.Acked(0, &f, size/2)
		if !c.want(w.size) {
			t.Errorf("after a trial with %v: %d bytes", c.then, w.size)
		}
	}
}

// TestWindowCountsLossesByRounds: losses of more than one round trip cut the
// window more than once, though the first packet is missing all the time.
func TestWindowCountsLossesByRounds(t *testing.T) {
	t.Parallel()
	const packet, size, base = 1024 + PacketOverhead, 1 << 20, 10 * time.Millisecond
	w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1000})
	f := Flight{Next: size, Packet: packet, RTT: base, MinRTT: base}
	for range 16 {
		for range 8 * size / packet / 10 {
			w.Lost(0, &f, Selective)
		}
		w.Acked(0, &f, size/10*2)
	}
	if w.size > size/64 {
		t.Errorf("%d bytes after 16 round trips of which most was lost", w.size)
	}
}

// TestWindowGrowsAfterSilence: a cut because of losses in a large window says
// nothing of what is sent after a long silence has made the window small.
func TestWindowGrowsAfterSilence(t *testing.T) {
	t.Parallel()
	const packet, size, base = 1024 + PacketOverhead, 8 << 20, 10 * time.Millisecond
	w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1 << 20})
	una := uint64(0)
	flight := func() *Flight {
		return &Flight{Una: una, Next: una + uint64(w.size), Packet: packet, RTT: 2 * base, MinRTT: base}
	}
	for range 2 {
		w.Lost(0, flight(), Selective)
	}
	for range 20 {
		w.Lost(0, flight(), Timeout)
	}
	if w.size != 2*packet {
		t.Fatalf("after 20 timeouts the size is %d", w.size)
	}
	for range 4 {
		n := w.size
		una += uint64(n)
		w.Acked(0, flight(), uint64(n))
	}
	if w.size < 4*packet {
		t.Errorf("after four round trips the size is %d, as it was", w.size)
	}
}

// TestWindowGrowsAlikeWhereMarked: on a path that marks, the window grows by as
// much whatever it has lost. Else the flow that met a loss first takes the path
// from all others.
func TestWindowGrowsAlikeWhereMarked(t *testing.T) {
	t.Parallel()
	const packet, size = 1024 + PacketOverhead, 1 << 20
	for _, rtt := range []time.Duration{20 * time.Microsecond, 200 * time.Microsecond, 20 * time.Millisecond} {
		w := NewWindow(Config{InitialBytes: size, MaxBytes: 4 * size, MaxPSNs: 1 << 20})
		f := Flight{Next: size, Packet: packet, Pipe: size, RTT: rtt, MinRTT: rtt}
		w.Marked(0, &f, Notified)
		f.Una, f.Next = size+1, 2*size
		w.Lost(0, &f, Selective)
		for range size / packet {
			w.Acked(0, &f, packet)
		}
		before := w.size
		for n := 0; n < before; n += packet {
			w.Acked(0, &f, packet)
		}
		if grown := w.size - before; grown < growth/2 || grown > growth+packet {
			t.Errorf("round trip %v: a window of %d bytes grew by %d bytes, want %d", rtt, before, grown, growth)
		}
	}
}
