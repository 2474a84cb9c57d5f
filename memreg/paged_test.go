package memreg

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// paged is memory of which a part is present.
type paged struct {
	*foreign
	from, to uint64 // is present
	writable bool
}

func (m *paged) Present(off, n uint64, write bool) bool {
	return off >= m.from && off+n <= m.to && (m.writable || !write)
}

func (m *paged) Fetch(off, n uint64, write bool) { m.from, m.to, m.writable = off, off+n, write }

// Views do not touch what is not present, and say what to fetch; the program's
// own accesses do not ask.
func TestPagedMemory(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	m := &paged{foreign: newForeign(size)}
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(t, tab, pd, m, Options{Base: BaseIOVA, IOVA: 0x1000, Access: ib.LocalWrite | ib.RemoteWrite})
	v, f := tab.Resolve(pd, 1, r.RKey(), 0x1000+64, size-128, ib.RemoteWrite)
	wantFault(t, "resolving", f, ib.FaultNone)
	defer v.Release()
	buf := make([]byte, 16)
	for _, c := range []struct {
		why   string
		n     uint64
		write bool
		do    func() ib.Fault
	}{
		{"CopyIn", 16, true, func() ib.Fault { return v.CopyIn(8, buf) }},
		{"CopyOut", 16, false, func() ib.Fault { return v.CopyOut(buf, 8) }},
		{"Load64", 8, false, func() ib.Fault { _, f := v.Load64(8); return f }},
		{"Store64", 8, true, func() ib.Fault { return v.Store64(8, 1) }},
		{"CompareSwap64", 8, true, func() ib.Fault { _, f := v.CompareSwap64(8, 1, 2); return f }},
		{"FetchAdd64", 8, true, func() ib.Fault { _, f := v.FetchAdd64(8, 2); return f }},
	} {
		*m = paged{foreign: m.foreign}
		m.n = 0
		wantFault(t, c.why, c.do(), ib.FaultNotPresent)
		if m.n != 0 {
			t.Errorf("%s has touched the memory", c.why)
		}
		missing := v.Missing(8, c.n, c.write)
		if want := (Missing{Region: r, Off: 72, Len: fetchAhead, Write: c.write}); missing != want {
			t.Errorf("%s: %+v, want %+v", c.why, missing, want)
		}
		missing.Fetch()
		wantFault(t, c.why+" of what is present", c.do(), ib.FaultNone)
	}
	*m = paged{foreign: m.foreign}
	wantFault(t, "the program's copy", r.CopyIn(0, buf), ib.FaultNone)
	wantFault(t, "the program's copy", r.CopyOut(buf, 0), ib.FaultNone)
	_, f = r.FetchAdd64(0, 1)
	wantFault(t, "the program's atomic", f, ib.FaultNone)
	v.Missing(size, 1, true).Fetch() // nothing: out of bounds
	if m.to != 0 {
		t.Error("something was fetched")
	}
}

// In a list the first part that is not present is named.
func TestMissingLocal(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m := &paged{foreign: newForeign(4096), to: 100}
	here := mustRegister(t, tab, pd, Local(make([]byte, 64)), Options{Access: ib.LocalWrite})
	r := mustRegister(t, tab, pd, m, Options{Base: BaseZero, Access: ib.LocalWrite})
	sg := []ib.SGE{here.SGE(0, 50), r.SGE(0, 50), {}, r.SGE(60, 100)}
	buf := make([]byte, 150)
	wantFault(t, "Gather", tab.Gather(pd, sg, 10, buf), ib.FaultNotPresent)
	if got, want := tab.MissingLocal(pd, sg, 10, 150, 0), (Missing{Region: r, Off: 60, Len: 100}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	wantFault(t, "Scatter", tab.Scatter(pd, sg, 60, buf[:40]), ib.FaultNotPresent)
	if got, want := tab.MissingLocal(pd, sg, 60, 40, ib.LocalWrite), (Missing{Region: r, Off: 10, Len: 40, Write: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := tab.MissingLocal(pd, sg, 0, 140, 0); got != (Missing{}) {
		t.Errorf("all is present, but %+v", got)
	}
	if got := tab.MissingLocal(pd, sg, 0, 1000, 0); got != (Missing{}) {
		t.Errorf("beyond the list: %+v", got)
	}
	mustDeregister(t, tab, r)
	if got := tab.MissingLocal(pd, sg, 10, 150, 0); got != (Missing{}) {
		t.Errorf("a region that is gone: %+v", got)
	}
}

// Memory that says ib.FaultNotPresent by itself is not put off for ever.
func TestNotPresentIsForPagedMemory(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m := newForeign(64)
	m.good, m.err = 0, ib.FaultNotPresent
	r := mustRegister(t, tab, pd, m, Options{Base: BaseZero})
	wantFault(t, "Gather", tab.Gather(pd, []ib.SGE{r.SGE(0, 8)}, 0, make([]byte, 8)), ib.FaultMemory)
}
