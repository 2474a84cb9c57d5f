package cc

import (
	"testing"
	"time"
)

// TestShortPath: on a short path a loss makes the window a little smaller,
// several in a round halve it once. A few rounds of losses without a queue
// prove that they are noise; then it takes a quarter of the round.
func TestShortPath(t *testing.T) {
	t.Parallel()
	const packet = 4096 + PacketOverhead
	const size = 32 * packet
	f := Flight{Packet: packet, Pipe: size, RTT: 8 * time.Microsecond, MinRTT: 8 * time.Microsecond}
	w := NewWindow(Config{InitialBytes: size, MaxBytes: size, MaxPSNs: 1 << 20})
	lose := func(n int) (cuts int) {
		for range n {
			if w.Lost(0, f, Selective) {
				cuts++
			}
		}
		return cuts
	}
	if cuts := lose(1); cuts != 0 || w.size != size-size/16 {
		t.Errorf("one loss: %d cuts, the window is %d bytes of %d", cuts, w.size, size)
	}
	if cuts := lose(12); cuts != 1 || w.size != size/2 {
		t.Errorf("13 losses in a round: %d cuts, the window is %d bytes of %d", cuts, w.size, size)
	}
	w.Reset()
	for range 4 * noiseProof {
		lose(4)
		for range w.size / packet {
			w.Acked(0, f, packet)
		}
	}
	if w.noise < noiseProof {
		t.Fatalf("losses that go on without a queue prove nothing: %d of %d", w.noise, noiseProof)
	}
	for range 32 * size / packet {
		w.Acked(0, f, packet)
	}
	w.noise = noiseProof
	w.begin(w.size, f.Pipe)
	if cuts := lose(5); cuts != 0 || w.size < size/8*7 {
		t.Errorf("5 losses where noise is proved: %d cuts, the window is %d bytes of %d", cuts, w.size, size)
	}
	if cuts := lose(5); cuts != 1 || w.size > size/2 {
		t.Errorf("10 losses where noise is proved: %d cuts, the window is %d bytes of %d", cuts, w.size, size)
	}
	f.RTT *= 3 // a queue
	for range 64 * size / packet {
		w.Acked(0, f, packet)
	}
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
			w.Marked(0, f, Notified)
			f.Una = 2 * size
		}
		before := w.size
		if w.Lost(0, f, Selective) || w.size != before {
			t.Errorf("%s: one loss makes the window %d bytes of %d", name, w.size, before)
		}
	}
}
