package memreg

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// aligned returns n zero bytes whose address is skew beyond a multiple of 8.
func aligned(n, skew int) []byte {
	b := make([]byte, n+16)
	for uintptr(unsafe.Pointer(&b[0]))%8 != 0 {
		b = b[1:]
	}
	return b[skew : skew+n : skew+n]
}

// An atomic returns what was there before; a compare and swap writes only if
// that is equal, a fetch and add wraps at 2^64 (IBTA 9.4.5).
func TestAtomicSemantics(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]Memory{"local": Local(aligned(64, 0)), "foreign": &foreign{m: Local(aligned(64, 0)), good: 64}} {
		tab := newTable(1)
		pd := tab.AllocPD()
		r := mustRegister(t, tab, pd, m, Options{Access: all, Base: BaseZero})
		v, f := tab.Resolve(pd, 1, r.RKey(), 8, 8, ib.RemoteAtomic)
		wantFault(t, name, f, ib.FaultNone)
		step := func(what string, got uint64, f ib.Fault, want, after uint64) {
			t.Helper()
			now, _ := r.Load64(8)
			if f != ib.FaultNone || got != want || now != after {
				t.Errorf("%s: %s returned %#x (%v) and left %#x; want %#x, %#x", name, what, got, f, now, want, after)
			}
		}
		wantFault(t, "store", r.Store64(8, 5), ib.FaultNone)
		got, f := v.Load64(0)
		step("load", got, f, 5, 5)
		got, f = v.CompareSwap64(0, 4, 9)
		step("compare and swap that differs", got, f, 5, 5)
		got, f = v.CompareSwap64(0, 5, 9)
		step("compare and swap", got, f, 5, 9)
		got, f = v.CompareSwap64(0, 9, 9)
		step("compare and swap with itself", got, f, 9, 9)
		got, f = v.FetchAdd64(0, math.MaxUint64)
		step("fetch and add of -1", got, f, 9, 8)
		got, f = r.FetchAdd64(8, math.MaxUint64-7)
		step("fetch and add to 2^64", got, f, 8, 0)
		got, f = r.CompareSwap64(8, 0, 0x0102030405060708)
		step("region's compare and swap", got, f, 0, 0x0102030405060708)
		var b [8]byte
		wantFault(t, "copy", v.CopyOut(b[:], 0), ib.FaultNone)
		if binary.NativeEndian.Uint64(b[:]) != 0x0102030405060708 {
			t.Errorf("%s: not in native order: %x", name, b)
		}
		wantFault(t, "store by view", v.Store64(0, 1), ib.FaultNone)
		got, f = r.Load64(8)
		step("load of the region", got, f, 1, 1)
		v.Release()
	}
}

// The address of an atomic is a multiple of 8 for the peer (IBTA 9.4.5.1), and
// in our memory too.
func TestAtomicAlignment(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	for _, c := range []struct {
		name string
		skew int
		iova uint64
		off  uint64
		want ib.Fault
	}{
		{"both aligned", 0, 4096, 8, ib.FaultNone},
		{"address and offset add up", 4, 4100, 4, ib.FaultNone},
		{"offset misaligned", 0, 4096, 4, ib.FaultMisaligned},
		{"address misaligned", 0, 4100, 8, ib.FaultMisaligned},
		{"address aligned, bytes not", 4, 4096, 8, ib.FaultMisaligned},
		{"address misaligned, bytes aligned", 4, 4096, 4, ib.FaultMisaligned},
		{"last word", 0, 4096, 56, ib.FaultNone},
		{"beyond and misaligned", 0, 4096, 57, ib.FaultOutOfBounds},
		{"far beyond", 0, 4096, math.MaxUint64 - 3, ib.FaultOutOfBounds},
	} {
		r := mustRegister(t, tab, pd, Local(aligned(64, c.skew)), Options{Access: all, Base: BaseIOVA, IOVA: c.iova})
		v, f := tab.Resolve(pd, 1, r.RKey(), c.iova, 64, ib.RemoteAtomic)
		wantFault(t, c.name, f, ib.FaultNone)
		for _, m := range []interface {
			Load64(uint64) (uint64, ib.Fault)
			Store64(uint64, uint64) ib.Fault
			CompareSwap64(uint64, uint64, uint64) (uint64, ib.Fault)
			FetchAdd64(uint64, uint64) (uint64, ib.Fault)
		}{r, v} {
			_, f := m.Load64(c.off)
			wantFault(t, c.name+": load", f, c.want)
			wantFault(t, c.name+": store", m.Store64(c.off, 1), c.want)
			_, f = m.CompareSwap64(c.off, 0, 1)
			wantFault(t, c.name+": compare and swap", f, c.want)
			_, f = m.FetchAdd64(c.off, 1)
			wantFault(t, c.name+": fetch and add", f, c.want)
		}
		v.Release()
	}
}

// Memory checks for itself too: it may be used without a region.
func TestLocalMemory(t *testing.T) {
	t.Parallel()
	m := Local(aligned(16, 0))
	for _, c := range []struct {
		off  uint64
		want ib.Fault
	}{{0, ib.FaultNone}, {8, ib.FaultNone}, {1, ib.FaultMisaligned}, {9, ib.FaultOutOfBounds}, {16, ib.FaultOutOfBounds}, {math.MaxUint64 - 3, ib.FaultOutOfBounds}} {
		_, err := m.Load64(c.off)
		wantFault(t, "load", faultOf(err), c.want)
		wantFault(t, "store", faultOf(m.Store64(c.off, 1)), c.want)
		_, err = m.CompareSwap64(c.off, 0, 1)
		wantFault(t, "compare and swap", faultOf(err), c.want)
		_, err = m.FetchAdd64(c.off, 1)
		wantFault(t, "fetch and add", faultOf(err), c.want)
	}
	for _, c := range []struct {
		off  uint64
		n    int
		want ib.Fault
	}{{0, 16, ib.FaultNone}, {16, 0, ib.FaultNone}, {0, 17, ib.FaultOutOfBounds}, {17, 0, ib.FaultOutOfBounds}, {math.MaxUint64, 1, ib.FaultOutOfBounds}} {
		wantFault(t, "CopyIn", faultOf(m.CopyIn(c.off, make([]byte, c.n))), c.want)
		wantFault(t, "CopyOut", faultOf(m.CopyOut(make([]byte, c.n), c.off)), c.want)
	}
}

// Remote atomics and the application's own count together, without a lost
// update.
func TestAtomicsTogether(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(aligned(8, 0)), Options{Access: all})
	const each = 2000
	var wg sync.WaitGroup
	run := func(add func()) {
		wg.Go(func() {
			for range each {
				add()
			}
		})
	}
	remote := func(do func(View)) {
		v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteAtomic)
		if f != ib.FaultNone {
			t.Error(f)
			return
		}
		do(v)
		v.Release()
	}
	run(func() { r.FetchAdd64(0, 1) })
	run(func() { remote(func(v View) { v.FetchAdd64(0, 1) }) })
	run(func() {
		remote(func(v View) {
			for {
				old, _ := v.Load64(0)
				if got, _ := v.CompareSwap64(0, old, old+1); got == old {
					return
				}
			}
		})
	})
	wg.Wait()
	if n, _ := r.Load64(0); n != 3*each {
		t.Errorf("counted %d, want %d", n, 3*each)
	}
}
