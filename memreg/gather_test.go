package memreg

import (
	"bytes"
	"math"
	"testing"
)

// pattern returns n bytes of which no two neighbours are alike.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func TestGatherScatterEveryRange(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	fm := newForeign(32)
	a := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: LocalWrite})
	b := mustRegister(t, tab, pd, fm, Options{Access: LocalWrite, Base: BaseIOVA, IOVA: 12345})
	// Entries of 0 bytes are skipped, whatever their key and address.
	sg := []SGE{{0, 0, 0}, a.SGE(3, 5), {math.MaxUint64, 0, 77}, b.SGE(1, 9), b.SGE(20, 1), a.SGE(16, 16), {0, 0, 0}}
	const total = 5 + 9 + 1 + 16
	if n := TotalLength(sg); n != total {
		t.Fatalf("TotalLength = %d, want %d", n, total)
	}
	clear32 := make([]byte, 32)
	for off := 0; off <= total; off++ {
		for n := 0; n <= total-off; n++ {
			copy(a.bytes, clear32)
			if err := fm.CopyIn(0, clear32); err != nil {
				t.Fatal(err)
			}
			src := pattern(n)
			wantFault(t, "scatter", tab.Scatter(pd, sg, uint64(off), src), None)
			image := make([]byte, 32)
			if err := fm.CopyOut(image, 0); err != nil {
				t.Fatal(err)
			}
			flat := bytes.Join([][]byte{a.bytes[3:8], image[1:10], image[20:21], a.bytes[16:32]}, nil)
			want := make([]byte, total)
			copy(want[off:], src)
			if !bytes.Equal(flat, want) {
				t.Fatalf("scatter of %d at %d: %x, want %x", n, off, flat, want)
			}
			if a.bytes[2] != 0 || a.bytes[8] != 0 || a.bytes[15] != 0 || image[0] != 0 || image[10] != 0 {
				t.Fatalf("scatter of %d at %d wrote outside the entries", n, off)
			}
			dst := make([]byte, n)
			wantFault(t, "gather", tab.Gather(pd, sg, uint64(off), dst), None)
			if !bytes.Equal(dst, src) {
				t.Fatalf("gather of %d at %d: %x, want %x", n, off, dst, src)
			}
		}
	}
}

func TestGatherScatterFaults(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	rw := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: LocalWrite})
	ro := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{})
	other := mustRegister(t, tab, pd2, Local(make([]byte, 32)), Options{Access: LocalWrite})
	good := rw.SGE(0, 8)
	for _, c := range []struct {
		name            string
		sg              []SGE
		off             uint64
		n               int
		gather, scatter Fault
	}{
		{"empty list, nothing", nil, 0, 0, None, None},
		{"empty list", nil, 0, 1, OutOfBounds, OutOfBounds},
		{"nothing at the end", []SGE{good}, 8, 0, None, None},
		{"nothing behind the end", []SGE{good}, 9, 0, OutOfBounds, OutOfBounds},
		{"list too short", []SGE{good, good}, 1, 16, OutOfBounds, OutOfBounds},
		{"offset wraps", []SGE{good}, math.MaxUint64, 8, OutOfBounds, OutOfBounds},
		{"unknown key", []SGE{{good.Addr, 8, good.LKey + 1}}, 0, 1, UnknownKey, UnknownKey},
		{"unknown key before the part that is used", []SGE{{0, 8, 0}, good}, 8, 8, None, None},
		{"unknown key behind the part that is used", []SGE{good, {0, 8, 0}}, 0, 8, None, None},
		{"unknown key in the second entry", []SGE{good, {0, 8, 0}}, 0, 9, UnknownKey, UnknownKey},
		{"rkey", []SGE{{rw.Addr(), 8, rw.RKey()}}, 0, 1, UnknownKey, UnknownKey},
		{"other domain", []SGE{good, other.SGE(0, 8)}, 7, 2, WrongPD, WrongPD},
		{"not writable", []SGE{ro.SGE(0, 8)}, 0, 8, None, NoAccess},
		{"entry beyond its region", []SGE{rw.SGE(25, 8)}, 0, 8, OutOfBounds, OutOfBounds},
		{"an entry is checked as a whole", []SGE{rw.SGE(25, 8)}, 0, 1, OutOfBounds, OutOfBounds},
		{"entry before its region", []SGE{{rw.Addr() - 1, 8, rw.LKey()}}, 4, 1, OutOfBounds, OutOfBounds},
	} {
		b := make([]byte, c.n)
		wantFault(t, c.name+": gather", tab.Gather(pd, c.sg, c.off, b), c.gather)
		wantFault(t, c.name+": scatter", tab.Scatter(pd, c.sg, c.off, b), c.scatter)
	}
	tab.Deregister(rw)
	wantFault(t, "dead key", tab.Gather(pd, []SGE{good}, 0, make([]byte, 8)), UnknownKey)
}

func TestTooShortListIsNotTouched(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: LocalWrite})
	wantFault(t, "scatter", tab.Scatter(pd, []SGE{r.SGE(0, 8)}, 0, pattern(9)), OutOfBounds)
	if !bytes.Equal(r.bytes, make([]byte, 32)) {
		t.Error("bytes were written")
	}
}

func TestTotalLengthDoesNotWrap(t *testing.T) {
	t.Parallel()
	sg := []SGE{{0, math.MaxUint32, 1}, {0, math.MaxUint32, 1}, {0, 2, 1}}
	if n := TotalLength(sg); n != 1<<33 {
		t.Errorf("TotalLength = %d", n)
	}
}
