package memreg

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// TestPhantomChecksAsMemoryDoes: whatever is asked of a region on a phantom, by
// whatever key, the fault is that of a region on memory of the same length.
func TestPhantomChecksAsMemoryDoes(t *testing.T) {
	t.Parallel()
	const size = 4096
	rng := rand.New(rand.NewPCG(7, 7))
	type side struct {
		tab        *Table
		pd, other  *PD
		r, reduced *Region
	}
	make2 := func(m func() Memory) side {
		s := side{tab: newTable(1)} // the same keys on both sides
		s.pd, s.other = s.tab.AllocPD(), s.tab.AllocPD()
		all := ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
		s.r = mustRegister(t, s.tab, s.pd, m(), Options{Access: all, Base: BaseIOVA, IOVA: 1 << 32})
		s.reduced = mustRegister(t, s.tab, s.pd, m(), Options{Access: ib.RemoteRead, Base: BaseIOVA, IOVA: 1 << 33})
		return s
	}
	memory := make2(func() Memory { return Local(make([]byte, size)) })
	phantom := make2(func() Memory { return Phantom(size) })
	buf := make([]byte, size+16)
	faults := map[ib.Fault]int{}
	for i := range 20000 {
		var got [2]ib.Fault
		seed := rng.Uint64()
		for k, s := range []side{memory, phantom} {
			got[k] = anyAccess(rand.New(rand.NewPCG(seed, 0)), s.tab, [2]*PD{s.pd, s.other}, [2]*Region{s.r, s.reduced}, buf)
		}
		if got[0] != got[1] {
			t.Fatalf("access %d: memory %v, phantom %v", i, got[0], got[1])
		}
		faults[got[0]]++
	}
	for _, f := range []ib.Fault{ib.FaultNone, ib.FaultUnknownKey, ib.FaultWrongPD, ib.FaultNoAccess, ib.FaultOutOfBounds, ib.FaultMisaligned} {
		if faults[f] < 20 {
			t.Errorf("%v was met %d times", f, faults[f])
		}
	}
}

// anyAccess makes an access that may be wrong in all ways, and returns the
// fault that it meets.
func anyAccess(rng *rand.Rand, tab *Table, pds [2]*PD, regions [2]*Region, buf []byte) ib.Fault {
	r, pd := regions[rng.IntN(2)], pds[0]
	if rng.IntN(8) == 0 {
		pd = pds[1]
	}
	off, n := rng.Uint64N(5000), rng.IntN(len(buf))
	if rng.IntN(2) == 0 {
		off, n = rng.Uint64N(64)*8, rng.IntN(64)
	}
	lkey, rkey := r.LKey(), r.RKey()
	if rng.IntN(8) == 0 {
		lkey, rkey = rkey, lkey+1
	}
	sg := []ib.SGE{{Addr: r.Addr() + off, Length: uint32(n), LKey: lkey}}
	at := rng.Uint64N(32)
	switch rng.IntN(8) {
	case 0:
		return tab.Gather(pd, sg, at, buf[:n/2])
	case 1:
		return tab.Scatter(pd, sg, at, buf[:n/2])
	}
	v, f := tab.Resolve(pd, 17, rkey, r.Addr()+off, uint64(n), ib.RemoteRead|[]ib.Access{0, ib.RemoteWrite}[rng.IntN(2)])
	if f != ib.FaultNone {
		return f
	}
	defer v.Release()
	switch rng.IntN(6) {
	case 0:
		return v.CopyOut(buf[:rng.IntN(n+2)], at)
	case 1:
		return v.CopyIn(at, buf[:rng.IntN(n+2)])
	case 2:
		_, f = v.Load64(at)
	case 3:
		f = v.Store64(at, 1)
	case 4:
		_, f = v.CompareSwap64(at, 0, 1)
	default:
		_, f = v.FetchAdd64(at, 1)
	}
	return f
}

// TestPhantomTouchesNothing: copies do nothing, words are 0, and an exabyte
// takes no memory.
func TestPhantomTouchesNothing(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Phantom(1<<60), Options{Access: ib.LocalWrite | ib.RemoteAtomic, Base: BaseIOVA, IOVA: 1 << 20})
	buf := []byte("as it was")
	last := r.SGE(1<<60-9, 9)
	wantFault(t, "write", tab.Scatter(pd, []ib.SGE{last}, 0, []byte("something")), ib.FaultNone)
	wantFault(t, "read", tab.Gather(pd, []ib.SGE{last}, 0, buf), ib.FaultNone)
	if string(buf) != "as it was" {
		t.Errorf("a copy out wrote %q", buf)
	}
	wantFault(t, "behind the end", tab.Gather(pd, []ib.SGE{r.SGE(1<<60-8, 9)}, 0, buf), ib.FaultOutOfBounds)
	v, f := tab.Resolve(pd, 17, r.RKey(), r.Addr()+64, 8, ib.RemoteAtomic)
	wantFault(t, "resolve", f, ib.FaultNone)
	if old, f := v.FetchAdd64(0, 5); old != 0 || f != ib.FaultNone {
		t.Errorf("add: %d, %v", old, f)
	}
	if old, f := v.CompareSwap64(0, 0, 9); old != 0 || f != ib.FaultNone {
		t.Errorf("swap: %d, %v", old, f)
	}
	if x, f := v.Load64(0); x != 0 || f != ib.FaultNone {
		t.Errorf("load: %d, %v", x, f)
	}
	if v.Placeable() || v.Place(0, 8) != nil || v.Bytes() != nil {
		t.Error("there are bytes")
	}
	v.Release()
	mustDeregister(t, tab, r)
}
