package transport

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
)

// lastRun returns the latest run of b as Run finds it, from packet first on,
// where one begins.
func lastRun(b *TxBatch, first int) (r Run) {
	for i := first; i < b.Len(); i = r.Last {
		r = b.Run(i, true)
	}
	return r
}

// checkRuns compares the account that b keeps of its latest run with what Run
// finds from packet first on, and returns where the run begins.
func checkRuns(t *testing.T, b *TxBatch, first int) int {
	t.Helper()
	if b.Len() == 0 {
		if b.runLen != 0 || b.full() {
			t.Fatalf("a run of %d packets in an empty batch", b.runLen)
		}
		return 0
	}
	r := lastRun(b, first)
	if r.Len() != b.runLen || r.SegmentSize != b.runSize || b.pkts[r.First].off != b.runStart || b.runStart+len(r.Data) != b.off {
		t.Fatalf("the latest run has %d packets of %d bytes from %d to %d; the account says %d of %d from %d",
			r.Len(), r.SegmentSize, b.pkts[r.First].off, b.off, b.runLen, b.runSize, b.runStart)
	}
	return r.First
}

// takesMore reports whether one more packet of the size of the run that begins
// at packet first would leave with it, and not alone.
func takesMore(t *testing.T, b *TxBatch, first int) bool {
	t.Helper()
	r := b.Run(first, true)
	if r.Last != b.Len() {
		t.Fatal("not the latest run")
	}
	larger := NewTxBatch(2 * MaxRunBytes)
	for i := first; i < r.Last; i++ {
		if !larger.CopyPacket(b, i) {
			t.Fatal("a larger batch is full")
		}
	}
	larger.Commit(r.SegmentSize-rocev2.ICRCLen, r.Path)
	more := larger.Run(0, true)
	return more.Len() > r.Len()
}

// sizeMix returns a source of packet sizes, BTH to pad, as traffic has them.
func sizeMix(rng *rand.Rand) func() int {
	const most = rocev2.MaxPacketLen - rocev2.ICRCLen
	full := rocev2.BTHLen + 256<<rng.IntN(5)
	switch rng.IntN(5) {
	case 0: // one size
		return func() int { return full }
	case 1: // long messages
		return func() int {
			if rng.IntN(40) == 0 {
				return rocev2.BTHLen + rng.IntN(full-rocev2.BTHLen)
			}
			return full
		}
	case 2: // small ones
		return func() int { return rocev2.BTHLen + 4*rng.IntN(4) }
	case 3: // first, middle and last packets
		return func() int { return min(full+[]int{0, 0, 0, 0, 16, -20}[rng.IntN(6)], most) }
	}
	return func() int { return rocev2.BTHLen + rng.IntN(most-rocev2.BTHLen+1) }
}

// A batch that is full before the end of its memory ends with a run that takes
// no more, whatever the packets; and it is never full after a run that does
// take more.
func TestBatchEndsWithWholeRun(t *testing.T) {
	t.Parallel()
	early, late := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		size := []int{0, 10000, MaxRunBytes, 80 << 10, 160 << 10, 256 << 10}[rng.IntN(6)]
		b := NewTxBatch(size)
		paths := []*Path{NewPath(addrA, Path{Dst: addrB}), NewPath(addrA, Path{Dst: addrB})}
		change := []int{0, 2, 50}[rng.IntN(3)]
		for range 3 {
			next, path, first := sizeMix(rng), paths[0], 0
			for {
				room := b.Room()
				if room == nil {
					break
				}
				if len(room) != rocev2.MaxPacketLen || cap(room) != len(room) || b.off+len(room) > len(b.arena) {
					t.Fatalf("room for %d bytes at %d of %d", len(room), b.off, len(b.arena))
				}
				if b.off >= b.soft && b.Len() > 0 && rng.IntN(4) == 0 && !takesMore(t, b, first) {
					t.Fatalf("seed %d: room at %d of %d behind a whole run", seed, b.off, len(b.arena))
				}
				if change > 0 && rng.IntN(change) == 0 {
					path = paths[rng.IntN(2)]
				}
				b.Commit(next(), path)
				first = checkRuns(t, b, first)
			}
			if b.Len() == 0 {
				t.Fatalf("seed %d: no room in an empty batch of %d", seed, size)
			}
			if b.off+rocev2.MaxPacketLen > len(b.arena) {
				late++
			} else if early++; takesMore(t, b, first) {
				r := b.Run(first, true)
				t.Fatalf("seed %d: full at %d of %d behind a run of %d packets of %d bytes, which takes more", seed, b.off, len(b.arena), r.Len(), r.SegmentSize)
			}
			b.Reset()
			checkRuns(t, b, 0)
		}
	}
	if early == 0 || late == 0 {
		t.Errorf("%d batches ended before their memory, %d with it", early, late)
	}
}

// Equal packets, as a bulk transfer has them, fill a batch with whole runs up
// to the last one.
func TestBulkBatchHasWholeRunsOnly(t *testing.T) {
	t.Parallel()
	path := NewPath(addrA, Path{Dst: addrB})
	for _, m := range []rocev2.MTU{rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024, rocev2.MTU2048, rocev2.MTU4096} {
		n := rocev2.BTHLen + m.Bytes()
		b := NewTxBatch(160 << 10)
		for b.Room() != nil {
			b.Commit(n, path)
		}
		want := min(MaxRunSegments, MaxRunBytes/(n+rocev2.ICRCLen))
		for i := 0; i < b.Len(); {
			r := b.Run(i, true)
			if r.Len() != want {
				t.Errorf("MTU %d: a run of %d packets, want %d", m.Bytes(), r.Len(), want)
			}
			i = r.Last
		}
		if b.Bytes() < (160<<10)-MaxRunBytes-rocev2.MaxPacketLen {
			t.Errorf("MTU %d: %d bytes in the batch", m.Bytes(), b.Bytes())
		}
	}
}

// What package fault does with batches, copies, views and resets, keeps the
// account of runs right and the batches apart.
func TestRunsOfCopiesAndViews(t *testing.T) {
	t.Parallel()
	paths := []*Path{NewPath(addrA, Path{Dst: addrB}), NewPath(addrA, Path{Dst: addrB})}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		src, dst := NewTxBatch(160<<10), NewTxBatch(80<<10)
		next := sizeMix(rng)
		for src.Room() != nil && src.Len() < 200 {
			src.Commit(next(), paths[rng.IntN(8)/7])
		}
		var v TxBatch
		first := 0
		for range 400 {
			switch i := rng.IntN(src.Len()); rng.IntN(12) {
			case 0:
				dst.Reset()
				first = 0
			case 1:
				last := i + rng.IntN(src.Len()-i+1)
				src.View(&v, i, last)
				if v.Room() != nil || v.Len() != last-i || v.CopyPacket(src, i) {
					t.Fatal("a view takes packets")
				}
				v.SealAll(localA, true)
				for k := range v.Len() {
					if data, _ := v.Sealed(k); !paths[0].Flow(localA).Verify(v.pkts[k].id, data) {
						t.Fatal("a view is sealed wrong")
					}
				}
				v = TxBatch{}
				checkRuns(t, src, 0)
			case 2:
				if room := dst.Room(); room != nil {
					dst.Commit(next(), paths[1])
				}
			default:
				full := dst.off+src.pkts[i].n+rocev2.ICRCLen > len(dst.arena)
				if dst.CopyPacket(src, i) == full {
					t.Fatalf("a copy of %d bytes to %d of %d: full is %v", src.pkts[i].n, dst.off, len(dst.arena), full)
				}
			}
			first = checkRuns(t, dst, first)
		}
	}
}
