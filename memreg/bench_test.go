package memreg

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

func TestNoAllocations(t *testing.T) {
	tab := newTable(1)
	pd := tab.AllocPD()
	buf := make([]byte, 4096)
	local := mustRegister(t, tab, pd, Local(make([]byte, 8192)), Options{Access: all | ib.MWBind})
	window := mustGrant(t, tab, local, GrantOptions{Offset: 8, Length: 4000, Access: ib.RemoteWrite, QPN: 7})
	far := mustRegister(t, tab, pd, newForeign(8192), Options{Access: all, Base: BaseZero})
	torn := newForeign(8192)
	torn.good, torn.err = 0, ib.FaultMemory
	bad := mustRegister(t, tab, pd, torn, Options{Access: all, Base: BaseZero})
	sg := []ib.SGE{local.SGE(0, 3000), {}, far.SGE(100, 3000)}
	for _, c := range []struct {
		name string
		do   func() ib.Fault
		want ib.Fault
	}{
		{"Resolve and copy", func() ib.Fault {
			v, f := tab.Resolve(pd, 1, local.RKey(), local.Addr(), 4096, ib.RemoteWrite)
			if f == ib.FaultNone {
				f = v.CopyIn(0, buf)
				v.Release()
			}
			return f
		}, ib.FaultNone},
		{"Resolve of a grant, and a refusal", func() ib.Fault {
			v, f := tab.Resolve(pd, 7, window.Key(), window.Addr(), 4000, ib.RemoteWrite)
			if f == ib.FaultNone {
				f = v.CopyIn(0, buf[:4000])
				v.Release()
			}
			if _, refused := tab.Resolve(pd, 8, window.Key(), window.Addr(), 1, ib.RemoteWrite); refused != ib.FaultNoAccess {
				return refused
			}
			return f
		}, ib.FaultNone},
		{"Resolve of an unknown key", func() ib.Fault {
			_, f := tab.Resolve(pd, 1, local.LKey(), local.Addr(), 4096, ib.RemoteWrite)
			return f
		}, ib.FaultUnknownKey},
		{"Gather", func() ib.Fault { return tab.Gather(pd, sg, 1000, buf) }, ib.FaultNone},
		{"Scatter", func() ib.Fault { return tab.Scatter(pd, sg, 1000, buf) }, ib.FaultNone},
		{"Scatter that faults", func() ib.Fault { return tab.Scatter(pd, []ib.SGE{bad.SGE(0, 8)}, 0, buf[:8]) }, ib.FaultMemory},
		{"atomics", func() ib.Fault {
			v, f := tab.Resolve(pd, 1, local.RKey(), local.Addr(), 8, ib.RemoteAtomic)
			if f == ib.FaultNone {
				_, f = v.FetchAdd64(0, 1)
				_, _ = v.CompareSwap64(0, 1, 2)
				v.Release()
			}
			return f
		}, ib.FaultNone},
		{"atomics on foreign memory", func() ib.Fault {
			_, _ = far.CompareSwap64(8, 0, 1)
			_ = far.Store64(8, 0)
			_, f := far.FetchAdd64(8, 1)
			return f
		}, ib.FaultNone},
		{"Misaligned", func() ib.Fault { return local.Store64(1, 1) }, ib.FaultMisaligned},
	} {
		var got ib.Fault
		if n := testing.AllocsPerRun(100, func() { got = c.do() }); n != 0 {
			t.Errorf("%s allocates %v times", c.name, n)
		}
		wantFault(t, c.name, got, c.want)
	}
}

// fill registers n regions over the same bytes.
func fill(b *testing.B, n int) (*Table, *PD, []*Region) {
	tab := newTable(1)
	pd := tab.AllocPD()
	m := Local(make([]byte, 65536))
	regions := make([]*Region, n)
	for i := range regions {
		regions[i] = mustRegister(b, tab, pd, m, Options{Access: all})
	}
	rand.New(rand.NewPCG(2, 2)).Shuffle(n, func(i, j int) { regions[i], regions[j] = regions[j], regions[i] })
	return tab, pd, regions
}

// The cost of Resolve and Release by the number of regions, for keys in use by
// 8 peers (hot) and for any key at random (all: what grows are cache misses of
// the keys' own list, the table and the regions).
func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{10, 1000, 1000000} {
		tab, pd, regions := fill(b, n)
		keys := make([]ib.Key, n)
		for i, r := range regions {
			keys[i] = r.RKey()
		}
		addr := regions[0].Addr()
		for _, use := range []struct {
			name string
			n    int
		}{{"hot", 8}, {"all", n}} {
			b.Run(fmt.Sprintf("regions=%d/%s", n, use.name), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					v, f := tab.Resolve(pd, 1, keys[i], addr, 4096, ib.RemoteWrite)
					if f != ib.FaultNone {
						b.Fatal(f)
					}
					v.Release()
					if i++; i == use.n {
						i = 0
					}
				}
			})
		}
		b.Run(fmt.Sprintf("regions=%d/unknown", n), func(b *testing.B) {
			b.ReportAllocs()
			key := ib.Key(0)
			for b.Loop() {
				key += 0x9e3779b1
				if v, f := tab.Resolve(pd, 1, key, addr, 4096, ib.RemoteWrite); f == ib.FaultNone {
					v.Release()
				}
			}
		})
	}
}

// An access through a grant that is bound to a queue pair, and what it costs to
// make and revoke one.
func BenchmarkGrant(b *testing.B) {
	tab := newTable(1)
	pd := tab.AllocPD()
	r := mustRegister(b, tab, pd, Local(make([]byte, 65536)), Options{Access: all | ib.MWBind})
	o := GrantOptions{Offset: 4096, Length: 4096, Access: ib.RemoteWrite, QPN: 7}
	b.Run("resolve", func(b *testing.B) {
		g := mustGrant(b, tab, r, o)
		b.ReportAllocs()
		for b.Loop() {
			v, f := tab.Resolve(pd, 7, g.Key(), g.Addr(), 4096, ib.RemoteWrite)
			if f != ib.FaultNone {
				b.Fatal(f)
			}
			v.Release()
		}
	})
	b.Run("grant and revoke", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tab.Revoke(mustGrant(b, tab, r, o))
		}
	})
}

// One region used by every processor at once: the pin count is shared.
func BenchmarkResolveParallel(b *testing.B) {
	tab, pd, regions := fill(b, 1)
	r := regions[0]
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 4096, ib.RemoteWrite)
			if f != ib.FaultNone {
				b.Error(f)
				return
			}
			v.Release()
		}
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	_, _, regions := fill(b, 1)
	for b.Loop() {
		if regions[0].local.acquire() {
			regions[0].local.release()
		}
	}
}

func BenchmarkGather(b *testing.B) {
	tab, pd, regions := fill(b, 8)
	for _, entries := range []int{1, 4} {
		for _, size := range []int{8, 4096} {
			b.Run(fmt.Sprintf("entries=%d/bytes=%d", entries, size), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(size))
				sg := make([]ib.SGE, entries)
				for i := range sg {
					sg[i] = regions[i].SGE(0, uint32(size/entries))
				}
				dst := make([]byte, size)
				for b.Loop() {
					if f := tab.Gather(pd, sg, 0, dst); f != ib.FaultNone {
						b.Fatal(f)
					}
				}
			})
		}
	}
}

func BenchmarkFetchAdd(b *testing.B) {
	tab, pd, regions := fill(b, 8)
	r := regions[0]
	b.ReportAllocs()
	for b.Loop() {
		v, f := tab.Resolve(pd, 1, r.RKey(), r.Addr(), 8, ib.RemoteAtomic)
		if f != ib.FaultNone {
			b.Fatal(f)
		}
		if _, f := v.FetchAdd64(0, 1); f != ib.FaultNone {
			b.Fatal(f)
		}
		v.Release()
	}
}

// Registration and deregistration with many regions beside, growth included in
// the first.
func BenchmarkRegister(b *testing.B) {
	b.Run("growing", func(b *testing.B) {
		b.ReportAllocs()
		tab := newTable(1)
		pd := tab.AllocPD()
		m := Local(make([]byte, 65536))
		for b.Loop() {
			if tab.Regions() == 1000000 {
				tab = newTable(1)
				pd = tab.AllocPD()
			}
			mustRegister(b, tab, pd, m, Options{Access: all})
		}
	})
	for _, n := range []int{10, 1000000} {
		tab, pd, _ := fill(b, n)
		m := Local(make([]byte, 65536))
		b.Run(fmt.Sprintf("churn/regions=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustDeregister(b, tab, mustRegister(b, tab, pd, m, Options{Access: all}))
			}
		})
	}
}
