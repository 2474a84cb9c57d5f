package cc

import (
	"testing"
	"time"
)

// shortWindow is a window of 32 packets on a path of 8 µs.
type shortWindow struct {
	*Window
	f Flight
}

const (
	shortPacket = 4096 + PacketOverhead
	shortSize   = 32 * shortPacket
)

func newShortWindow() shortWindow {
	return shortWindow{
		NewWindow(Config{InitialBytes: shortSize, MaxBytes: shortSize, MaxPSNs: 1 << 20}),
		Flight{Packet: shortPacket, Pipe: shortSize, RTT: 8 * time.Microsecond, MinRTT: 8 * time.Microsecond},
	}
}

// lose loses n packets, and returns how many of them are cuts.
func (w *shortWindow) lose(n int) (cuts int) {
	for range n {
		if w.Lost(0, &w.f, Selective) {
			cuts++
		}
	}
	return cuts
}

func (w *shortWindow) acked(n int) {
	for range n {
		w.Acked(0, &w.f, shortPacket)
	}
}

// TestShortPath: on a short path a loss makes the window a little smaller, and
// several in a round make it less than half as large, once for all that is in
// flight then.
func TestShortPath(t *testing.T) {
	t.Parallel()
	const cut = shortSize / 16 * 7
	w := newShortWindow()
	if cuts := w.lose(1); cuts != 0 || w.size != shortSize-shortSize/shortDip {
		t.Errorf("one loss: %d cuts, the window is %d bytes of %d", cuts, w.size, shortSize)
	}
	if cuts := w.lose(12); cuts != 1 || w.size != cut {
		t.Errorf("13 losses in a round: %d cuts, the window is %d bytes of %d", cuts, w.size, shortSize)
	}
	w.f.RTT *= 3 // a queue
	w.acked(10)
	if cuts := w.lose(10); cuts != 0 || w.size != cut {
		t.Errorf("10 more of what was in flight at the cut: %d cuts, the window is %d bytes of %d", cuts, w.size, cut)
	}
}

// TestShortPathNoise: after a round of losses without a queue a cut is
// smaller. A few such rounds prove that losses are noise: then it takes a
// quarter of the round, and in the end one loss costs nothing.
func TestShortPathNoise(t *testing.T) {
	t.Parallel()
	w := newShortWindow()
	w.lose(4)
	w.acked(shortSize / shortPacket)
	before := w.size
	if cuts := w.lose(4); cuts != 1 || w.size < before/4*3-16 || w.size > before/4*3 {
		t.Errorf("4 losses after a round of losses without a queue: %d cuts, the window is %d bytes of %d", cuts, w.size, before)
	}
	w.Reset()
	for range 4 * noiseProof {
		w.lose(4)
		w.acked(w.size / shortPacket)
	}
	if w.noise < noiseProof {
		t.Fatalf("losses that go on without a queue prove nothing: %d of %d", w.noise, noiseProof)
	}
	for _, c := range []struct{ noise, losses, cuts, least, most int }{
		{noiseProof, 5, 0, shortSize / 8 * 7, shortSize - 1},
		{noiseProof, 10, 1, 0, shortSize / 2},
		{2 * noiseProof, 5, 0, shortSize, shortSize},
	} {
		w.acked(64 * 32)
		w.noise = int8(c.noise)
		w.begin(w.size, w.f.Pipe)
		if cuts := w.lose(c.losses); cuts != c.cuts || w.size < c.least || w.size > c.most {
			t.Errorf("%d losses where %d speaks for noise: %d cuts, the window is %d bytes of %d", c.losses, c.noise, cuts, w.size, shortSize)
		}
	}
	w.f.RTT *= 3 // a queue
	w.acked(64 * 32)
	if w.noise != 0 {
		t.Errorf("rounds with a queue, and without losses, leave %d of the proof", w.noise)
	}
}

// TestShortPathOnly: where the path is long, marks tell of queues, or READs are
// under way, one loss in a round is chance.
func TestShortPathOnly(t *testing.T) {
	t.Parallel()
	const packet = 4096 + PacketOverhead
	const size = 32 * packet
	short := Flight{Packet: packet, Next: size, Pipe: size, RTT: 8 * time.Microsecond, MinRTT: 8 * time.Microsecond}
	long, reads := short, short
	long.RTT, long.MinRTT = shortPath, shortPath
	reads.Pipe = 0
	for name, f := range map[string]Flight{"long": long, "READs": reads, "marks": short} {
		w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1 << 20})
		if name == "marks" {
			w.Marked(0, &f, Notified)
			f.Una = 2 * size
		}
		before := w.size
		if w.Lost(0, &f, Selective) || w.size != before {
			t.Errorf("%s: one loss makes the window %d bytes of %d", name, w.size, before)
		}
	}
}
