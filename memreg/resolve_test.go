package memreg

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

const all = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic

// Key, domain, rights and bounds are checked in this order, and address plus
// length does not wrap (IBTA 9.7.4.1.5).
func TestResolve(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	const base = 0x10000
	r := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: ib.LocalWrite | ib.RemoteRead, Base: BaseIOVA, IOVA: base})
	top := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: all, Base: BaseIOVA, IOVA: math.MaxUint64 - 4096})
	low := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: all, Base: BaseZero})
	dead := mustRegister(t, tab, pd, Local(make([]byte, 4096)), Options{Access: all, Base: BaseZero})
	mustDeregister(t, tab, dead)
	const maxU = math.MaxUint64

	for _, c := range []struct {
		name         string
		pd           *PD
		key          ib.Key
		addr, length uint64
		need         ib.Access
		want         ib.Fault
		explain      string
	}{
		{"whole region", pd, r.RKey(), base, 4096, ib.RemoteRead, ib.FaultNone, "valid"},
		{"last byte", pd, r.RKey(), base + 4095, 1, ib.RemoteRead, ib.FaultNone, "valid"},
		{"nothing at the end", pd, r.RKey(), base + 4096, 0, ib.RemoteRead, ib.FaultNone, "valid"},
		{"nothing behind the end", pd, r.RKey(), base + 4097, 0, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"key 0", pd, 0, base, 1, ib.RemoteRead, ib.FaultUnknownKey, "no region"},
		{"key off by a bit", pd, r.RKey() ^ 1<<31, base, 1, ib.RemoteRead, ib.FaultUnknownKey, "no region"},
		{"lkey as rkey", pd, r.LKey(), base, 1, ib.RemoteRead, ib.FaultUnknownKey, "is an lkey"},
		{"dead key", pd, dead.RKey(), 0, 1, ib.RemoteRead, ib.FaultUnknownKey, "deregistered"},
		{"other domain", pd2, r.RKey(), base, 1, ib.RemoteRead, ib.FaultWrongPD, "wrong protection domain"},
		{"no domain", nil, r.RKey(), base, 1, ib.RemoteRead, ib.FaultWrongPD, "wrong protection domain"},
		{"right missing", pd, r.RKey(), base, 1, ib.RemoteWrite, ib.FaultNoAccess, "RemoteWrite is not granted, the region has LocalWrite|RemoteRead"},
		{"one of two rights missing", pd, r.RKey(), base, 1, ib.RemoteRead | ib.RemoteAtomic, ib.FaultNoAccess, "RemoteAtomic is not granted"},
		{"flush", pd, r.RKey(), base, 1, ib.FlushGlobal, ib.FaultNoAccess, "FlushGlobal is not granted"},
		{"one byte below", pd, r.RKey(), base - 1, 2, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"one byte beyond", pd, r.RKey(), base + 1, 4096, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"behind", pd, r.RKey(), base + 4096, 1, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"address + length wraps to inside", pd, r.RKey(), base + 8, maxU - 4, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"address + length wraps to the start", pd, r.RKey(), maxU - 7, base + 8 + 100, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"longest length", pd, r.RKey(), base, maxU, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"highest address", pd, r.RKey(), maxU, maxU, ib.RemoteRead, ib.FaultOutOfBounds, "not inside"},
		{"top region whole", pd, top.RKey(), maxU - 4096, 4096, ib.RemoteWrite, ib.FaultNone, "valid"},
		{"top region, wraps", pd, top.RKey(), maxU - 1, 3, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside"},
		{"top region, wraps into the low one", pd, top.RKey(), maxU - 1, 100, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside"},
		{"top region by wrapped address", pd, top.RKey(), 0, 1, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside"},
		{"zero-based", pd, low.RKey(), 4095, 1, ib.RemoteAtomic, ib.FaultNone, "valid"},
		{"zero-based, below 0", pd, low.RKey(), maxU, 2, ib.RemoteWrite, ib.FaultOutOfBounds, "not inside"},
		// The order: domain before right before bounds.
		{"wrong in all, no key", pd2, 0, 0, 1, ib.RemoteWrite, ib.FaultUnknownKey, ""},
		{"wrong domain, right, bounds", pd2, r.RKey(), 0, 1, ib.RemoteWrite, ib.FaultWrongPD, ""},
		{"wrong right and bounds", pd, r.RKey(), 0, 1, ib.RemoteWrite, ib.FaultNoAccess, ""},
	} {
		v, f := tab.Resolve(c.pd, 1, c.key, c.addr, c.length, c.need)
		wantFault(t, c.name, f, c.want)
		if f == ib.FaultNone {
			if v.Addr() != c.addr || v.Len() != c.length || uint64(len(v.Bytes())) != c.length || cap(v.Bytes()) != len(v.Bytes()) {
				t.Errorf("%s: view of %d bytes at %#x, Bytes has %d", c.name, v.Len(), v.Addr(), len(v.Bytes()))
			}
			v.Release()
		} else if v != (View{}) {
			t.Errorf("%s: a view came with the fault", c.name)
		}
		if s := tab.Explain(c.pd, 1, c.key, c.addr, c.length, c.need); !strings.Contains(s, c.explain) {
			t.Errorf("%s: Explain says %q, want %q in it", c.name, s, c.explain)
		}
	}
	for _, r := range []*Region{r, top, low} {
		if n := pinsOf(r); n != 0 {
			t.Errorf("%d pins are left", n)
		}
	}
}

// Local reading needs no right, local writing does; an rkey is no lkey (IBTA
// 10.6.3).
func TestResolveLocal(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd, pd2 := tab.AllocPD(), tab.AllocPD()
	ro := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Base: BaseZero})
	for _, c := range []struct {
		name string
		pd   *PD
		s    ib.SGE
		need ib.Access
		want ib.Fault
	}{
		{"reading is always allowed", pd, ro.SGE(0, 64), 0, ib.FaultNone},
		{"writing is not", pd, ro.SGE(0, 64), ib.LocalWrite, ib.FaultNoAccess},
		{"rkey as lkey", pd, ib.SGE{Length: 64, LKey: ro.RKey()}, 0, ib.FaultUnknownKey},
		{"other domain", pd2, ro.SGE(0, 64), 0, ib.FaultWrongPD},
		{"beyond", pd, ro.SGE(1, 64), 0, ib.FaultOutOfBounds},
		{"longest", pd, ro.SGE(0, math.MaxUint32), 0, ib.FaultOutOfBounds},
	} {
		v, f := tab.ResolveLocal(c.pd, c.s, c.need)
		wantFault(t, c.name, f, c.want)
		v.Release()
	}
	if s := tab.Explain(pd, 1, ro.RKey(), 0, 64, 0); !strings.Contains(s, "is an rkey") {
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
		v, f := tab.Resolve(pd, 1, r.RKey(), 4096+16, 16, ib.RemoteWrite)
		wantFault(t, "resolve", f, ib.FaultNone)
		if (v.Bytes() == nil) != (kind == "foreign") {
			t.Errorf("%s: Bytes is %v", kind, v.Bytes())
		}
		b := make([]byte, 17)
		wantFault(t, kind+": whole", v.CopyIn(0, []byte("0123456789abcdef")), ib.FaultNone)
		wantFault(t, kind+": one too long", v.CopyIn(0, b), ib.FaultOutOfBounds)
		wantFault(t, kind+": one too far", v.CopyIn(16, b[:1]), ib.FaultOutOfBounds)
		wantFault(t, kind+": wrapping offset", v.CopyIn(math.MaxUint64, b[:2]), ib.FaultOutOfBounds)
		wantFault(t, kind+": out, one too long", v.CopyOut(b, 0), ib.FaultOutOfBounds)
		wantFault(t, kind+": out, wrapping", v.CopyOut(b[:16], math.MaxUint64-7), ib.FaultOutOfBounds)
		wantFault(t, kind+": nothing at the end", v.CopyIn(16, nil), ib.FaultNone)
		wantFault(t, kind+": part out", v.CopyOut(b[:4], 10), ib.FaultNone)
		if string(b[:4]) != "abcd" {
			t.Errorf("%s: read %q", kind, b[:4])
		}
		for _, off := range []uint64{9, 16, math.MaxUint64 - 3} {
			_, f = v.Load64(off)
			wantFault(t, fmt.Sprintf("%s: load at %d of 16", kind, off), f, ib.FaultOutOfBounds)
			wantFault(t, "store", v.Store64(off, 1), ib.FaultOutOfBounds)
			_, f = v.CompareSwap64(off, 0, 1)
			wantFault(t, "compare and swap", f, ib.FaultOutOfBounds)
			_, f = v.FetchAdd64(off, 1)
			wantFault(t, "fetch and add", f, ib.FaultOutOfBounds)
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
	wantFault(t, "copy of nothing", v.CopyIn(0, nil), ib.FaultNone)
	wantFault(t, "copy out of nothing", v.CopyOut(nil, 0), ib.FaultNone)
	wantFault(t, "copy of something", v.CopyIn(0, []byte{1}), ib.FaultOutOfBounds)
	_, f := v.Load64(0)
	wantFault(t, "load", f, ib.FaultOutOfBounds)
}

func TestForeignMemoryFaults(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m := newForeign(128)
	m.good = 64
	r := mustRegister(t, tab, pd, m, Options{Access: all, Base: BaseZero})
	v, f := tab.Resolve(pd, 1, r.RKey(), 0, 128, ib.RemoteWrite)
	wantFault(t, "resolving does not touch the memory", f, ib.FaultNone)
	if m.n != 0 {
		t.Errorf("resolving made %d accesses", m.n)
	}
	b := make([]byte, 64)
	check := func(why string, off uint64, want ib.Fault) {
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
		wantFault(t, why+": Gather", tab.Gather(pd, []ib.SGE{r.SGE(0, 128)}, off, b), want)
		wantFault(t, why+": Scatter", tab.Scatter(pd, []ib.SGE{r.SGE(0, 128)}, off, b), want)
	}
	check("mapped part", 0, ib.FaultNone)
	check("lost part", 64, ib.FaultMemory)
	m.err = fmt.Errorf("owner is closing: %w", ib.FaultGone)
	check("lost part, the memory knows why", 64, ib.FaultGone)
	v.Release()
	if n := pinsOf(r); n != 0 {
		t.Errorf("%d pins are left after faults", n)
	}
}

func TestReadOnlyMemory(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	b := make([]byte, 64)
	r := mustRegister(t, tab, pd, readOnly{Local(b)}, Options{Access: ib.RemoteRead})
	_, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteWrite)
	wantFault(t, "remote write", f, ib.FaultNoAccess)
	v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 64, ib.RemoteRead)
	wantFault(t, "remote read", f, ib.FaultNone)
	// Even a caller that asked for the wrong right cannot write what would
	// crash.
	wantFault(t, "CopyIn", v.CopyIn(0, b[:1]), ib.FaultNoAccess)
	wantFault(t, "Store64", v.Store64(0, 1), ib.FaultNoAccess)
	_, f = v.CompareSwap64(0, 0, 1)
	wantFault(t, "CompareSwap64", f, ib.FaultNoAccess)
	_, f = r.FetchAdd64(0, 1)
	wantFault(t, "FetchAdd64", f, ib.FaultNoAccess)
	_, f = r.Load64(0)
	wantFault(t, "Load64", f, ib.FaultNone)
	v.Release()
}
