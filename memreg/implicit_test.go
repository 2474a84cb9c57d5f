package memreg

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

func mustImplicit(t testing.TB, tab *Table, pd *PD) (*Implicit, *Region) {
	t.Helper()
	m := NewImplicit()
	return m, mustRegister(t, tab, pd, m, Options{Access: all | ib.OnDemand, Base: BaseIOVA})
}

// An implicit region reaches what is allowed, and nothing else: not the byte
// before or after, not from one range into the next, and not by an address and
// a length that wrap.
func TestImplicitReachesOnlyWhatIsAllowed(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m, r := mustImplicit(t, tab, pd)
	refused := func(why string, addr, n uint64) {
		t.Helper()
		v, f := tab.Resolve(pd, 1, r.RKey(), addr, n, ib.RemoteWrite)
		wantFault(t, why+", remote", f, ib.FaultOutOfBounds)
		v.Release()
		if n <= math.MaxUint32 && n > 0 {
			wantFault(t, why+", local", tab.Scatter(pd, []ib.SGE{{Addr: addr, Length: uint32(n), LKey: r.LKey()}}, 0, []byte{1}), ib.FaultOutOfBounds)
		}
	}
	for _, addr := range []uint64{0, 1, 8, 1 << 20, 1 << 63, math.MaxUint64 - 8, math.MaxUint64} {
		for _, n := range []uint64{1, 8, 1 << 31, math.MaxUint64 - addr, -addr, math.MaxUint64} {
			if n > 0 {
				refused("nothing is allowed", addr, n)
			}
		}
	}
	low, next, high := make([]byte, 64), make([]byte, 64), make([]byte, 64)
	must(t, m.Allow(0x1000, Local(low)))
	must(t, m.Allow(0x1040, Local(next)))
	must(t, m.Allow(math.MaxUint64-64, Local(high)))
	for _, c := range []struct {
		addr uint64
		buf  []byte
	}{{0x1000, low}, {0x1040, next}, {math.MaxUint64 - 64, high}} {
		v, f := tab.Resolve(pd, 1, r.RKey(), c.addr, 64, ib.RemoteWrite)
		wantFault(t, "what is allowed", f, ib.FaultNone)
		wantFault(t, "write", v.CopyIn(0, bytes.Repeat([]byte{7}, 64)), ib.FaultNone)
		got := make([]byte, 64)
		wantFault(t, "read", v.CopyOut(got, 0), ib.FaultNone)
		v.Release()
		if !bytes.Equal(c.buf, got) || c.buf[63] != 7 {
			t.Errorf("at %#x: %v", c.addr, c.buf)
		}
	}
	refused("the byte before", 0xfff, 2)
	refused("one byte more than there is", 0x1040, 65)
	refused("into the next range", 0x103f, 2)
	refused("behind", 0x1080, 1)
	refused("the highest address", math.MaxUint64, 1)
	refused("wraps from the top to the bottom", math.MaxUint64-64, 0x1200)
	refused("wraps to inside", 0x1010, math.MaxUint64-7)
	refused("address and length wrap", math.MaxUint64-7, math.MaxUint64)

	if !m.Forbid(0x1000) || m.Forbid(0x1000) || m.Forbid(0x1041) || m.Ranges() != 2 {
		t.Error("forbid: what is on the list, once")
	}
	refused("forbidden", 0x1000, 8)
}

// Words are those of the underlying memory, in one range.
func TestImplicitWords(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m, r := mustImplicit(t, tab, pd)
	buf := aligned(64, 0)
	base := AddrOf(buf)
	must(t, m.Allow(base, Local(buf)))
	v, f := tab.Resolve(pd, 1, r.RKey(), base+8, 8, ib.RemoteAtomic)
	wantFault(t, "resolve", f, ib.FaultNone)
	defer v.Release()
	wantFault(t, "store", v.Store64(0, 5), ib.FaultNone)
	if old, f := v.CompareSwap64(0, 5, 6); old != 5 || f != ib.FaultNone {
		t.Errorf("compare and swap: %d, %v", old, f)
	}
	if old, f := v.FetchAdd64(0, 2); old != 6 || f != ib.FaultNone {
		t.Errorf("fetch and add: %d, %v", old, f)
	}
	if x, f := v.Load64(0); x != 8 || f != ib.FaultNone {
		t.Errorf("load: %d, %v", x, f)
	}
	m.Forbid(base)
	wantFault(t, "a view of what is forbidden", v.Store64(0, 1), ib.FaultOutOfBounds)
	wantFault(t, "a view of what is forbidden", v.CopyIn(0, []byte{1}), ib.FaultOutOfBounds)
}

func TestAllowErrors(t *testing.T) {
	t.Parallel()
	m := NewImplicit()
	must(t, m.Allow(0x1000, Local(make([]byte, 16))))
	for _, c := range []struct {
		why  string
		addr uint64
		mem  Memory
		want error
	}{
		{"nil", 0, nil, ErrMemory},
		{"nothing", 0, Local(nil), ErrMemory},
		{"wraps", math.MaxUint64 - 7, Local(make([]byte, 8)), ErrAddress},
		{"the same", 0x1000, Local(make([]byte, 16)), ErrOverlap},
		{"its first byte", 0xff1, Local(make([]byte, 16)), ErrOverlap},
		{"its last byte", 0x100f, Local(make([]byte, 16)), ErrOverlap},
		{"around it", 0xfff, Local(make([]byte, 18)), ErrOverlap},
		{"inside", 0x1004, Local(make([]byte, 4)), ErrOverlap},
		{"before it", 0xff0, Local(make([]byte, 16)), nil},
		{"behind it", 0x1010, Local(make([]byte, 16)), nil},
	} {
		if err := m.Allow(c.addr, c.mem); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.why, err, c.want)
		}
	}
	if m.Ranges() != 3 {
		t.Errorf("%d ranges", m.Ranges())
	}
}

// Pages of what is allowed are asked for as they are of other regions.
func TestImplicitPages(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m, r := mustImplicit(t, tab, pd)
	p := &countedPages{Memory: Local(make([]byte, 64))}
	must(t, m.Allow(0x1000, p))
	v, f := tab.Resolve(pd, 1, r.RKey(), 0x1010, 8, ib.RemoteWrite)
	wantFault(t, "resolve", f, ib.FaultNone)
	wantFault(t, "write", v.CopyIn(0, []byte{1}), ib.FaultNotPresent)
	missing := v.Missing(0, 1, true)
	missing.Fetch()
	if p.off != 0x10 || !p.here {
		t.Errorf("fetched at %#x of the memory behind", p.off)
	}
	wantFault(t, "write", v.CopyIn(0, []byte{1}), ib.FaultNone)
	v.Release()
	m.Forbid(0x1000)
	missing.Fetch() // late: there is nothing
}

// countedPages is memory of which nothing is present before a fetch.
type countedPages struct {
	Memory
	here bool
	off  uint64
}

func (p *countedPages) Bytes() []byte                     { return nil }
func (p *countedPages) Present(_, _ uint64, _ bool) bool  { return p.here }
func (p *countedPages) Fetch(off, _ uint64, _ bool)       { p.off, p.here = off, true }
func (p *countedPages) CopyIn(off uint64, b []byte) error { return p.Memory.CopyIn(off, b) }

// While others access it, ranges come and go: when Forbid returns nothing
// touches the memory. The race detector sees it, because the memory is written
// then without any synchronisation.
func TestForbidWaits(t *testing.T) {
	t.Parallel()
	tab := newTable(1)
	pd := tab.AllocPD()
	m, r := mustImplicit(t, tab, pd)
	const ranges = 8
	var done atomic.Bool
	var hits atomic.Int64
	var wg sync.WaitGroup
	for id := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 5))
			dst := make([]byte, 64)
			for !done.Load() {
				v, f := tab.Resolve(pd, 1, r.RKey(), uint64(rng.IntN(ranges))<<12, 64, ib.RemoteRead)
				if f != ib.FaultNone {
					runtime.Gosched()
					continue
				}
				if v.CopyOut(dst, 0) == ib.FaultNone {
					hits.Add(1)
					checkBytes(t, dst)
				}
				v.Release()
			}
		})
	}
	rng := rand.New(rand.NewPCG(9, 1))
	mem := make([][]byte, ranges)
	for round := 0; round < 4000 || hits.Load() == 0; round++ {
		i := rng.IntN(ranges)
		if mem[i] == nil {
			mem[i] = bytes.Repeat([]byte{0xa5}, 64)
			must(t, m.Allow(uint64(i)<<12, Local(mem[i])))
			continue
		}
		m.Forbid(uint64(i) << 12)
		clear(mem[i])
		mem[i] = nil
	}
	done.Store(true)
	wg.Wait()
	mustDeregister(t, tab, r)
}

func TestImplicitDoesNotAllocate(t *testing.T) {
	tab := newTable(1)
	pd := tab.AllocPD()
	m, r := mustImplicit(t, tab, pd)
	buf := make([]byte, 4096)
	must(t, m.Allow(0x1000, Local(make([]byte, 8192))))
	n := testing.AllocsPerRun(100, func() {
		v, f := tab.Resolve(pd, 1, r.RKey(), 0x1800, 4096, ib.RemoteWrite)
		if f == ib.FaultNone {
			f = v.CopyIn(0, buf)
		}
		if f == ib.FaultNone {
			f = v.CopyOut(buf, 0)
		}
		v.Release()
		if f != ib.FaultNone {
			t.Error(f)
		}
	})
	if n != 0 {
		t.Errorf("an access allocates %v times", n)
	}
}

// slowMemory calls during in the middle of a write.
type slowMemory struct {
	Memory
	during func()
}

func (m *slowMemory) CopyIn(off uint64, src []byte) error {
	m.during()
	return m.Memory.CopyIn(off, src)
}

// Forbid waits for an access that has begun under an earlier list, too: the
// memory may be given back when it returns.
func TestForbidWaitsForEarlierLists(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"allow", "forbid", "nothing"} {
		m := NewImplicit()
		var returned atomic.Bool
		done := make(chan struct{})
		must(t, m.Allow(0x9000, Local(make([]byte, 8))))
		must(t, m.Allow(0x1000, &slowMemory{Local(make([]byte, 8)), func() {
			switch between {
			case "allow":
				must(t, m.Allow(0x5000, Local(make([]byte, 8))))
			case "forbid":
				m.Forbid(0x9000)
			}
			go func() {
				m.Forbid(0x1000)
				returned.Store(true)
				close(done)
			}()
			for range 1000 {
				runtime.Gosched()
			}
			if returned.Load() {
				t.Errorf("%s between: Forbid has returned beside a write", between)
			}
		}}))
		must(t, m.CopyIn(0x1000, []byte{1}))
		<-done
		if err := m.CopyIn(0x1000, []byte{1}); err == nil {
			t.Error("what is forbidden was written")
		}
	}
}
