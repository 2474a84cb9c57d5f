package memreg

import (
	"bytes"
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
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
	a := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: ib.LocalWrite})
	b := mustRegister(t, tab, pd, fm, Options{Access: ib.LocalWrite, Base: BaseIOVA, IOVA: 12345})
	// Entries of 0 bytes are skipped, whatever their key and address.
	sg := []ib.SGE{{Addr: 0, Length: 0, LKey: 0}, a.SGE(3, 5), {Addr: math.MaxUint64, Length: 0, LKey: 77}, b.SGE(1, 9), b.SGE(20, 1), a.SGE(16, 16), {Addr: 0, Length: 0, LKey: 0}}
	const total = 5 + 9 + 1 + 16
	if n := ib.TotalLength(sg); n != total {
		t.Fatalf("TotalLength = %d, want %d", n, total)
	}
	clear32 := make([]byte, 32)
	for off := 0; off <= total; off++ {
		for n := 0; n <= total-off; n++ {
			copy(a.bytes(), clear32)
			if err := fm.CopyIn(0, clear32); err != nil {
				t.Fatal(err)
			}
			src := pattern(n)
			wantFault(t, "scatter", tab.Scatter(pd, sg, uint64(off), src), ib.FaultNone)
			image := make([]byte, 32)
			if err := fm.CopyOut(image, 0); err != nil {
				t.Fatal(err)
			}
			flat := bytes.Join([][]byte{a.bytes()[3:8], image[1:10], image[20:21], a.bytes()[16:32]}, nil)
			want := make([]byte, total)
			copy(want[off:], src)
			if !bytes.Equal(flat, want) {
				t.Fatalf("scatter of %d at %d: %x, want %x", n, off, flat, want)
			}
			if a.bytes()[2] != 0 || a.bytes()[8] != 0 || a.bytes()[15] != 0 || image[0] != 0 || image[10] != 0 {
				t.Fatalf("scatter of %d at %d wrote outside the entries", n, off)
			}
			dst := make([]byte, n)
			wantFault(t, "gather", tab.Gather(pd, sg, uint64(off), dst), ib.FaultNone)
			if !bytes.Equal(dst, src) {
				t.Fatalf("gather of %d at %d: %x, want %x", n, off, dst, src)
			}
		}
	}
}

// Entries of a list are checked for lkey, domain, right and bounds, as far as
// they are used (IBTA 10.6.3).
func TestGatherScatterFaults(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	rw := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: ib.LocalWrite})
	ro := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{})
	other := mustRegister(t, tab, pd2, Local(make([]byte, 32)), Options{Access: ib.LocalWrite})
	good := rw.SGE(0, 8)
	for _, c := range []struct {
		name            string
		sg              []ib.SGE
		off             uint64
		n               int
		gather, scatter ib.Fault
	}{
		{"empty list, nothing", nil, 0, 0, ib.FaultNone, ib.FaultNone},
		{"empty list", nil, 0, 1, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
		{"nothing at the end", []ib.SGE{good}, 8, 0, ib.FaultNone, ib.FaultNone},
		{"nothing behind the end", []ib.SGE{good}, 9, 0, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
		{"list too short", []ib.SGE{good, good}, 1, 16, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
		{"offset wraps", []ib.SGE{good}, math.MaxUint64, 8, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
		{"unknown key", []ib.SGE{{Addr: good.Addr, Length: 8, LKey: good.LKey + 1}}, 0, 1, ib.FaultUnknownKey, ib.FaultUnknownKey},
		{"unknown key before the part that is used", []ib.SGE{{Addr: 0, Length: 8, LKey: 0}, good}, 8, 8, ib.FaultNone, ib.FaultNone},
		{"unknown key behind the part that is used", []ib.SGE{good, {Addr: 0, Length: 8, LKey: 0}}, 0, 8, ib.FaultNone, ib.FaultNone},
		{"unknown key in the second entry", []ib.SGE{good, {Addr: 0, Length: 8, LKey: 0}}, 0, 9, ib.FaultUnknownKey, ib.FaultUnknownKey},
		{"rkey", []ib.SGE{{Addr: rw.Addr(), Length: 8, LKey: rw.RKey()}}, 0, 1, ib.FaultUnknownKey, ib.FaultUnknownKey},
		{"other domain", []ib.SGE{good, other.SGE(0, 8)}, 7, 2, ib.FaultWrongPD, ib.FaultWrongPD},
		{"not writable", []ib.SGE{ro.SGE(0, 8)}, 0, 8, ib.FaultNone, ib.FaultNoAccess},
		{"entry beyond its region", []ib.SGE{rw.SGE(25, 8)}, 0, 8, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
		{"an entry is checked as a whole", []ib.SGE{rw.SGE(25, 8)}, 0, 1, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
		{"entry before its region", []ib.SGE{{Addr: rw.Addr() - 1, Length: 8, LKey: rw.LKey()}}, 4, 1, ib.FaultOutOfBounds, ib.FaultOutOfBounds},
	} {
		b := make([]byte, c.n)
		wantFault(t, c.name+": gather", tab.Gather(pd, c.sg, c.off, b), c.gather)
		wantFault(t, c.name+": scatter", tab.Scatter(pd, c.sg, c.off, b), c.scatter)
	}
	mustDeregister(t, tab, rw)
	wantFault(t, "dead key", tab.Gather(pd, []ib.SGE{good}, 0, make([]byte, 8)), ib.FaultUnknownKey)
}

func TestTooShortListIsNotTouched(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: ib.LocalWrite})
	wantFault(t, "scatter", tab.Scatter(pd, []ib.SGE{r.SGE(0, 8)}, 0, pattern(9)), ib.FaultOutOfBounds)
	if !bytes.Equal(r.bytes(), make([]byte, 32)) {
		t.Error("bytes were written")
	}
}

func TestTotalLengthDoesNotWrap(t *testing.T) {
	t.Parallel()
	sg := []ib.SGE{{Addr: 0, Length: math.MaxUint32, LKey: 1}, {Addr: 0, Length: math.MaxUint32, LKey: 1}, {Addr: 0, Length: 2, LKey: 1}}
	if n := ib.TotalLength(sg); n != 1<<33 {
		t.Errorf("TotalLength = %d", n)
	}
}

// PlaceLocal gives the memory that Scatter would write, to the end of an entry,
// and none where that would meet a fault.
func TestPlaceLocal(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	rw := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{Access: ib.LocalWrite})
	ro := mustRegister(t, tab, pd, Local(make([]byte, 32)), Options{})
	far := mustRegister(t, tab, pd, newForeign(32), Options{Access: ib.LocalWrite, Base: BaseIOVA, IOVA: 1 << 32})
	for _, c := range []struct {
		name string
		sg   []ib.SGE
		off  uint64
		want []byte
	}{
		{"the first byte", []ib.SGE{rw.SGE(0, 8), rw.SGE(16, 4)}, 0, rw.bytes()[:8]},
		{"the last byte of an entry", []ib.SGE{rw.SGE(0, 8), rw.SGE(16, 4)}, 7, rw.bytes()[7:8]},
		{"the second entry", []ib.SGE{rw.SGE(0, 8), rw.SGE(16, 4)}, 9, rw.bytes()[17:20]},
		{"behind an empty entry", []ib.SGE{rw.SGE(0, 0), rw.SGE(16, 4)}, 0, rw.bytes()[16:20]},
		{"behind the list", []ib.SGE{rw.SGE(0, 8)}, 8, nil},
		{"no list", nil, 0, nil},
		{"not writable", []ib.SGE{ro.SGE(0, 8)}, 0, nil},
		{"not local", []ib.SGE{far.SGE(0, 8)}, 0, nil},
		{"unknown key", []ib.SGE{{Addr: rw.Addr(), Length: 8, LKey: rw.LKey() + 1}}, 0, nil},
		{"an entry beyond its region", []ib.SGE{rw.SGE(25, 8)}, 0, nil},
	} {
		v := tab.PlaceLocal(pd, c.sg, c.off)
		b := v.Place(0, v.Len())
		if len(b) != len(c.want) || len(b) != cap(b) || len(b) > 0 && &b[0] != &c.want[0] {
			t.Errorf("%s: %d bytes, want %d", c.name, len(b), len(c.want))
		}
		pins := pinsOf(rw) + pinsOf(ro) + pinsOf(far)
		if (pins == 1) != (c.want != nil) || pins > 1 {
			t.Errorf("%s: %d pins", c.name, pins)
		}
		v.Release()
	}
}
