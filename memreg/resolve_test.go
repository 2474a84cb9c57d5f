package memreg

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
)

const all = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic

func TestResolve(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	const base = 0x10000
	r := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: LocalWrite | RemoteRead, Base: BaseIOVA, IOVA: base})
	top := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: all, Base: BaseIOVA, IOVA: math.MaxUint64 - 4096})
	low := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: all, Base: BaseZero})
	dead := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: all, Base: BaseZero})
	tab.Deregister(dead)
	const maxU = math.MaxUint64

	for _, c := range []struct {
		name         string
		pd           *PD
		key          Key
		addr, length uint64
		need         Access
		want         Fault
		explain      string
	}{
		{"whole region", pd, r.rkey, base, 4096, RemoteRead, None, "valid"},
		{"last byte", pd, r.rkey, base + 4095, 1, RemoteRead, None, "valid"},
		{"nothing at the end", pd, r.rkey, base + 4096, 0, RemoteRead, None, "valid"},
		{"nothing behind the end", pd, r.rkey, base + 4097, 0, RemoteRead, OutOfBounds, "not inside"},
		{"key 0", pd, 0, base, 1, RemoteRead, UnknownKey, "no region"},
		{"key off by a bit", pd, r.rkey ^ 1<<31, base, 1, RemoteRead, UnknownKey, "no region"},
		{"lkey as rkey", pd, r.lkey, base, 1, RemoteRead, UnknownKey, "is an lkey"},
		{"dead key", pd, dead.rkey, 0, 1, RemoteRead, UnknownKey, "deregistered"},
		{"other domain", pd2, r.rkey, base, 1, RemoteRead, WrongPD, "wrong protection domain"},
		{"no domain", nil, r.rkey, base, 1, RemoteRead, WrongPD, "wrong protection domain"},
		{"right missing", pd, r.rkey, base, 1, RemoteWrite, NoAccess, "RemoteWrite is not granted, the region has LocalWrite|RemoteRead"},
		{"one of two rights missing", pd, r.rkey, base, 1, RemoteRead | RemoteAtomic, NoAccess, "RemoteAtomic is not granted"},
		{"flush", pd, r.rkey, base, 1, FlushGlobal, NoAccess, "FlushGlobal is not granted"},
		{"one byte below", pd, r.rkey, base - 1, 2, RemoteRead, OutOfBounds, "not inside"},
		{"one byte beyond", pd, r.rkey, base + 1, 4096, RemoteRead, OutOfBounds, "not inside"},
		{"behind", pd, r.rkey, base + 4096, 1, RemoteRead, OutOfBounds, "not inside"},
		{"address + length wraps to inside", pd, r.rkey, base + 8, maxU - 4, RemoteRead, OutOfBounds, "not inside"},
		{"address + length wraps to the start", pd, r.rkey, maxU - 7, base + 8 + 100, RemoteRead, OutOfBounds, "not inside"},
		{"longest length", pd, r.rkey, base, maxU, RemoteRead, OutOfBounds, "not inside"},
		{"highest address", pd, r.rkey, maxU, maxU, RemoteRead, OutOfBounds, "not inside"},
		{"top region whole", pd, top.rkey, maxU - 4096, 4096, RemoteWrite, None, "valid"},
		{"top region, wraps", pd, top.rkey, maxU - 1, 3, RemoteWrite, OutOfBounds, "not inside"},
		{"top region, wraps into the low one", pd, top.rkey, maxU - 1, 100, RemoteWrite, OutOfBounds, "not inside"},
		{"top region by wrapped address", pd, top.rkey, 0, 1, RemoteWrite, OutOfBounds, "not inside"},
		{"zero-based", pd, low.rkey, 4095, 1, RemoteAtomic, None, "valid"},
		{"zero-based, below 0", pd, low.rkey, maxU, 2, RemoteWrite, OutOfBounds, "not inside"},
		// The order: domain before right before bounds.
		{"wrong in all, no key", pd2, 0, 0, 1, RemoteWrite, UnknownKey, ""},
		{"wrong domain, right, bounds", pd2, r.rkey, 0, 1, RemoteWrite, WrongPD, ""},
		{"wrong right and bounds", pd, r.rkey, 0, 1, RemoteWrite, NoAccess, ""},
	} {
		v, f := tab.Resolve(c.pd, c.key, c.addr, c.length, c.need)
		wantFault(t, c.name, f, c.want)
		if f == None {
			if v.Addr() != c.addr || v.Len() != c.length || uint64(len(v.Bytes())) != c.length || cap(v.Bytes()) != len(v.Bytes()) {
				t.Errorf("%s: view of %d bytes at %#x, Bytes has %d", c.name, v.Len(), v.Addr(), len(v.Bytes()))
			}
			v.Release()
		} else if v != (View{}) {
			t.Errorf("%s: a view came with the fault", c.name)
		}
		if s := tab.Explain(c.pd, c.key, c.addr, c.length, c.need); !strings.Contains(s, c.explain) {
			t.Errorf("%s: Explain says %q, want %q in it", c.name, s, c.explain)
		}
	}
	for _, r := range []*Region{r, top, low} {
		if n := r.pins.Load(); n != 0 {
			t.Errorf("%d pins are left", n)
		}
	}
}

func TestResolveLocal(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	ro := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Base: BaseZero})
	for _, c := range []struct {
		name string
		pd   *PD
		s    SGE
		need Access
		want Fault
	}{
		{"reading is always allowed", pd, ro.SGE(0, 64), 0, None},
		{"writing is not", pd, ro.SGE(0, 64), LocalWrite, NoAccess},
		{"rkey as lkey", pd, SGE{0, 64, ro.RKey()}, 0, UnknownKey},
		{"other domain", pd2, ro.SGE(0, 64), 0, WrongPD},
		{"beyond", pd, ro.SGE(1, 64), 0, OutOfBounds},
		{"longest", pd, ro.SGE(0, math.MaxUint32), 0, OutOfBounds},
	} {
		v, f := tab.ResolveLocal(c.pd, c.s, c.need)
		wantFault(t, c.name, f, c.want)
		v.Release()
	}
	if s := tab.Explain(pd, ro.RKey(), 0, 64, 0); !strings.Contains(s, "is an rkey") {
		t.Errorf("Explain of an rkey used locally: %q", s)
	}
}

func TestViewBounds(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"local", "foreign"} {
		tab := newTable(1)
		pd := tab.AllocPD()
		var m Memory = Local(make([]byte, 64))
		if kind == "foreign" {
			m = newForeign(64)
		}
		r := mustRegister(t, tab, pd, m, Options{Access: all, Base: BaseIOVA, IOVA: 4096})
		v, f := tab.Resolve(pd, r.RKey(), 4096+16, 16, RemoteWrite)
		wantFault(t, "resolve", f, None)
		if (v.Bytes() == nil) != (kind == "foreign") {
			t.Errorf("%s: Bytes is %v", kind, v.Bytes())
		}
		b := make([]byte, 17)
		wantFault(t, kind+": whole", v.CopyIn(0, []byte("0123456789abcdef")), None)
		wantFault(t, kind+": one too long", v.CopyIn(0, b), OutOfBounds)
		wantFault(t, kind+": one too far", v.CopyIn(16, b[:1]), OutOfBounds)
		wantFault(t, kind+": wrapping offset", v.CopyIn(math.MaxUint64, b[:2]), OutOfBounds)
		wantFault(t, kind+": out, one too long", v.CopyOut(b, 0), OutOfBounds)
		wantFault(t, kind+": out, wrapping", v.CopyOut(b[:16], math.MaxUint64-7), OutOfBounds)
		wantFault(t, kind+": nothing at the end", v.CopyIn(16, nil), None)
		wantFault(t, kind+": part out", v.CopyOut(b[:4], 10), None)
		if string(b[:4]) != "abcd" {
			t.Errorf("%s: read %q", kind, b[:4])
		}
		for _, off := range []uint64{9, 16, math.MaxUint64 - 3} {
			_, f = v.Load64(off)
			wantFault(t, fmt.Sprintf("%s: load at %d of 16", kind, off), f, OutOfBounds)
			wantFault(t, "store", v.Store64(off, 1), OutOfBounds)
			_, f = v.CompareSwap64(off, 0, 1)
			wantFault(t, "compare and swap", f, OutOfBounds)
			_, f = v.FetchAdd64(off, 1)
			wantFault(t, "fetch and add", f, OutOfBounds)
		}
		v.Release()
		around := make([]byte, 64)
		if err := m.CopyOut(around, 0); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, 64)
		copy(want[16:], "0123456789abcdef")
		if !bytes.Equal(around, want) {
			t.Errorf("%s: memory around the view changed: %q", kind, around)
		}
	}
}

func TestZeroView(t *testing.T) {
	t.Parallel()
	var v View
	v.Release()
	if !v.Acquire() || v.Bytes() != nil || v.Len() != 0 || v.Addr() != 0 || v.Region() != nil {
		t.Error("the zero View is not empty")
	}
	wantFault(t, "copy of nothing", v.CopyIn(0, nil), None)
	wantFault(t, "copy out of nothing", v.CopyOut(nil, 0), None)
	wantFault(t, "copy of something", v.CopyIn(0, []byte{1}), OutOfBounds)
	_, f := v.Load64(0)
	wantFault(t, "load", f, OutOfBounds)
}

func TestForeignMemoryFaults(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m := newForeign(128)
	m.good = 64
	r := mustRegister(t, tab, pd, m, Options{Access: all, Base: BaseZero})
	v, f := tab.Resolve(pd, r.RKey(), 0, 128, RemoteWrite)
	wantFault(t, "resolving does not touch the memory", f, None)
	if m.n != 0 {
		t.Errorf("resolving made %d accesses", m.n)
	}
	b := make([]byte, 64)
	check := func(why string, off uint64, want Fault) {
		t.Helper()
		wantFault(t, why+": CopyIn", v.CopyIn(off, b), want)
		wantFault(t, why+": CopyOut", v.CopyOut(b, off), want)
		_, f := v.Load64(off)
		wantFault(t, why+": Load64", f, want)
		wantFault(t, why+": Store64", v.Store64(off, 1), want)
		_, f = v.CompareSwap64(off, 1, 2)
		wantFault(t, why+": CompareSwap64", f, want)
		_, f = v.FetchAdd64(off, 1)
		wantFault(t, why+": FetchAdd64", f, want)
		wantFault(t, why+": Gather", tab.Gather(pd, []SGE{r.SGE(0, 128)}, off, b), want)
		wantFault(t, why+": Scatter", tab.Scatter(pd, []SGE{r.SGE(0, 128)}, off, b), want)
	}
	check("mapped part", 0, None)
	check("lost part", 64, MemoryFault)
	m.err = fmt.Errorf("owner is closing: %w", Gone)
	check("lost part, the memory knows why", 64, Gone)
	v.Release()
	if n := r.pins.Load(); n != 0 {
		t.Errorf("%d pins are left after faults", n)
	}
}

func TestReadOnlyMemory(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	b := make([]byte, 64)
	r := mustRegister(t, tab, pd, readOnly{Local(b)}, Options{Access: RemoteRead})
	_, f := tab.Resolve(pd, r.RKey(), r.Addr(), 8, RemoteWrite)
	wantFault(t, "remote write", f, NoAccess)
	v, f := tab.Resolve(pd, r.RKey(), r.Addr(), 64, RemoteRead)
	wantFault(t, "remote read", f, None)
	// Even a caller that asked for the wrong right cannot write what would crash.
	wantFault(t, "CopyIn", v.CopyIn(0, b[:1]), NoAccess)
	wantFault(t, "Store64", v.Store64(0, 1), NoAccess)
	_, f = v.CompareSwap64(0, 0, 1)
	wantFault(t, "CompareSwap64", f, NoAccess)
	_, f = r.FetchAdd64(0, 1)
	wantFault(t, "FetchAdd64", f, NoAccess)
	_, f = r.Load64(0)
	wantFault(t, "Load64", f, None)
	v.Release()
}
