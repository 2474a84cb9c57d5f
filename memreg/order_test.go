package memreg

import (
	"bytes"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// copyInLast is run also where CopyInLast does not need it.
func TestCopyInLast(t *testing.T) {
	t.Parallel()
	const size = 64
	src := make([]byte, size)
	for i := range src {
		src[i] = byte(i + 1)
	}
	for skew := range 8 {
		b := aligned(size, skew)
		tab := newTable(1)
		pd := tab.AllocPD()
		r := mustRegister(t, tab, pd, Local(b), Options{Access: all, Base: BaseZero})
		for at := range 9 {
			for n := range size - at + 1 {
				v, f := tab.Resolve(pd, 1, r.RKey(), uint64(at), uint64(n), ib.RemoteWrite)
				wantFault(t, "resolve", f, ib.FaultNone)
				inParts := func(off uint64, src []byte) ib.Fault { return v.copyInLast(off, src, orderStores) }
				for name, copyIn := range map[string]func(uint64, []byte) ib.Fault{"exported": v.CopyInLast, "in parts": inParts} {
					clear(b)
					wantFault(t, name, copyIn(0, src[:n]), ib.FaultNone)
					want := append(make([]byte, at), src[:n]...)
					if want = append(want, make([]byte, size-len(want))...); !bytes.Equal(b, want) {
						t.Fatalf("%s: %d bytes at %d: %x, want %x", name, n, at, b, want)
					}
					wantFault(t, "beyond the view", copyIn(1, src[:n]), ib.FaultOutOfBounds)
					if !bytes.Equal(b, want) {
						t.Fatalf("%s: %d bytes at %d: written beyond the view", name, n, at)
					}
				}
				if got, want := v.ending(0, n), wantEnding(skew+at+n, n); got != want {
					t.Fatalf("%d bytes at %d, %d bytes behind a word: the last %d are one store, want %d", n, at, skew, got, want)
				}
				v.Release()
			}
		}
	}
	wantFault(t, "no view", View{}.copyInLast(0, nil, orderStores), ib.FaultNone)
	wantFault(t, "beyond no view", View{}.copyInLast(0, src, orderStores), ib.FaultOutOfBounds)
}

// What one store writes at the end comes after the barrier, and all else before
// it; also where there is nothing else: the packets and messages before this
// one must be seen first, as when a flag of 8 bytes is written after data.
func TestCopyInLastOrders(t *testing.T) {
	t.Parallel()
	const size = 64
	b := aligned(size, 0)
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(b), Options{Access: all, Base: BaseZero})
	src := bytes.Repeat([]byte{0xff}, size)
	for n := 1; n <= size; n++ {
		clear(b)
		v, f := tab.Resolve(pd, 1, r.RKey(), 0, uint64(n), ib.RemoteWrite)
		wantFault(t, "resolve", f, ib.FaultNone)
		end, calls := v.ending(0, n), 0
		wantFault(t, "copy", v.copyInLast(0, src[:n], func() {
			calls++
			if got, want := bytes.Count(b, []byte{0xff}), n-end; got != want || bytes.IndexByte(b, 0) != want {
				t.Errorf("%d bytes: %x is written before the barrier, want %d bytes", n, b, want)
			}
		}), ib.FaultNone)
		if calls != 1 {
			t.Errorf("%d bytes: %d barriers", n, calls)
		}
		v.Release()
	}
}

// wantEnding is what ending returns for n bytes up to an address.
func wantEnding(end, n int) int {
	switch {
	case n == 0:
		return 0
	case n < 8 || end%8 != 0:
		return 1
	}
	return 8
}

// The end of a message comes alone, and not after a fault of what is before.
func TestCopyInLastOfForeignMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		good uint64 // bytes that can be written
		n    int    // calls of the memory
		want ib.Fault
	}{{64, 2, ib.FaultNone}, {60, 2, ib.FaultMemory}, {50, 1, ib.FaultMemory}} {
		m := &foreign{m: Local(aligned(64, 0)), good: c.good, err: ib.FaultMemory}
		tab := newTable(1)
		pd := tab.AllocPD()
		r := mustRegister(t, tab, pd, m, Options{Access: all, Base: BaseZero})
		v, f := tab.Resolve(pd, 1, r.RKey(), 0, 64, ib.RemoteWrite)
		wantFault(t, "resolve", f, ib.FaultNone)
		m.n = 0
		if f := v.copyInLast(0, make([]byte, 64), orderStores); f != c.want || m.n != c.n {
			t.Errorf("%d bytes of 64 can be written: %v after %d copies, want %v after %d", c.good, f, m.n, c.want, c.n)
		}
		v.Release()
	}
}

// What orders stores is not free, and must not allocate.
func TestCopyInLastAllocates(t *testing.T) {
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, Local(aligned(64, 0)), Options{Access: all, Base: BaseZero})
	v, f := tab.Resolve(pd, 1, r.RKey(), 0, 64, ib.RemoteWrite)
	wantFault(t, "resolve", f, ib.FaultNone)
	defer v.Release()
	src := make([]byte, 64)
	if n := testing.AllocsPerRun(100, func() { _ = v.copyInLast(0, src, orderStores) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
