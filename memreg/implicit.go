package memreg

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// ErrOverlap is what [Implicit.Allow] returns for addresses of which some are
// allowed already.
var ErrOverlap = errors.New("memreg: addresses are allowed already")

// Implicit is the whole address space as a Memory, for an implicit on-demand
// region: one key for all that a program allows, now and later. Nothing is
// allowed at first. An access must lie inside one range of the list; all other
// addresses are holes.
//
// Its methods may be called on any goroutine at the same time.
type Implicit struct {
	list atomic.Pointer[allowList]
}

// allowList is a list of ranges in the order of their addresses. It never
// changes: another takes its place, with the same ranges but one.
type allowList struct {
	ranges []*allowed
}

// allowed is a range of addresses and the memory that it stands for.
type allowed struct {
	addr, n uint64
	mem     Memory

	// The users are counted here and not in a list: a call that forbids the
	// range waits for all of them, whatever list they found it in.
	users    atomic.Int64 // accesses that are under way
	fetching atomic.Int64 // fetches of pages, which may take long
	gone     atomic.Bool  // it was forbidden
}

// NewImplicit returns an Implicit that allows nothing.
func NewImplicit() *Implicit {
	m := &Implicit{}
	m.list.Store(&allowList{})
	return m
}

// AddrOf returns the real address of the first byte of b, which is not empty.
func AddrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// search returns the index of the first range that ends after addr.
func (l *allowList) search(addr uint64) int {
	return sort.Search(len(l.ranges), func(i int) bool { return l.ranges[i].addr+(l.ranges[i].n-1) >= addr })
}

// find returns the range that n bytes at addr are in, nil if there is none.
func (l *allowList) find(addr, n uint64) *allowed {
	i := l.search(addr)
	if i == len(l.ranges) {
		return nil
	}
	a := l.ranges[i]
	if addr < a.addr || !inside(addr-a.addr, n, a.n) {
		return nil
	}
	return a
}

// Allow lets addresses from addr on stand for m. The error wraps ErrMemory for
// a nil or empty m, ErrAddress for addresses that wrap around the end of the
// address space, or ErrOverlap.
func (m *Implicit) Allow(addr uint64, mem Memory) error {
	if mem == nil || mem.Len() == 0 {
		return fmt.Errorf("%w: nothing to allow", ErrMemory)
	}
	a := &allowed{addr: addr, n: mem.Len(), mem: mem}
	if a.n > math.MaxUint64-addr {
		return fmt.Errorf("%w: %d bytes at %#x wrap around the end of the address space", ErrAddress, a.n, addr)
	}
	for {
		old := m.list.Load()
		i := old.search(addr)
		if i < len(old.ranges) && old.ranges[i].addr <= addr+(a.n-1) {
			return fmt.Errorf("%w: %d bytes at %#x", ErrOverlap, old.ranges[i].n, old.ranges[i].addr)
		}
		if m.list.CompareAndSwap(old, &allowList{ranges: slices.Insert(slices.Clone(old.ranges), i, a)}) {
			return nil
		}
	}
}

// Forbid takes back what Allow has allowed from addr on, and reports whether
// there was such a range. When it returns nothing touches the memory any more:
// it waits, yielding the processor, for accesses that are under way, and for
// pages that are being fetched.
func (m *Implicit) Forbid(addr uint64) bool {
	fetching, ok := m.Revoke(addr)
	for ok && fetching() {
		runtime.Gosched()
	}
	return ok
}

// Revoke is Forbid that does not wait for pages that are being fetched, which
// may take as long as a disk or a network does. The memory may go when fetching
// reports false; that does not change any more.
func (m *Implicit) Revoke(addr uint64) (fetching func() bool, ok bool) {
	for {
		old := m.list.Load()
		i := slices.IndexFunc(old.ranges, func(a *allowed) bool { return a.addr == addr })
		if i < 0 {
			return nil, false
		}
		if !m.list.CompareAndSwap(old, &allowList{ranges: slices.Delete(slices.Clone(old.ranges), i, i+1)}) {
			continue
		}
		a := old.ranges[i]
		a.gone.Store(true)
		for a.users.Load() != 0 {
			runtime.Gosched()
		}
		return func() bool { return a.fetching.Load() != 0 }, true
	}
}

// Ranges is how many ranges are allowed.
func (m *Implicit) Ranges() int { return len(m.list.Load().ranges) }

// enter returns the range that n bytes at addr are in, which leave must be
// called of; nil if there is none.
func (m *Implicit) enter(addr, n uint64) *allowed {
	for {
		a := m.list.Load().find(addr, n)
		if a == nil {
			return nil
		}
		a.users.Add(1)
		if !a.gone.Load() {
			return a
		}
		a.leave() // Forbid may have looked before; there is another list
	}
}

func (a *allowed) leave() { a.users.Add(-1) }

// Len is the size of the address space, but for its last byte.
func (m *Implicit) Len() uint64 { return math.MaxUint64 }

// Bytes is nil: nothing can be touched without a look at the list.
func (m *Implicit) Bytes() []byte { return nil }

// Contains reports whether n bytes at an address are in one range.
func (m *Implicit) Contains(addr, n uint64) bool { return m.list.Load().find(addr, n) != nil }

// with calls f for n bytes at addr, with their memory and where in it they are.
func (m *Implicit) with(addr, n uint64, f func(mem Memory, off uint64) error) error {
	a := m.enter(addr, n)
	if a == nil {
		return ib.FaultOutOfBounds
	}
	defer a.leave()
	return f(a.mem, addr-a.addr)
}

// CopyIn writes src at an address; ib.FaultOutOfBounds if that is not allowed.
func (m *Implicit) CopyIn(addr uint64, src []byte) error {
	return m.with(addr, uint64(len(src)), func(mem Memory, off uint64) error { return mem.CopyIn(off, src) })
}

// CopyOut reads len(dst) bytes at an address; faults as CopyIn.
func (m *Implicit) CopyOut(dst []byte, addr uint64) error {
	return m.with(addr, uint64(len(dst)), func(mem Memory, off uint64) error { return mem.CopyOut(dst, off) })
}

// Load64 reads the word at an address; faults as CopyIn.
func (m *Implicit) Load64(addr uint64) (v uint64, err error) {
	err = m.with(addr, 8, func(mem Memory, off uint64) (err error) { v, err = mem.Load64(off); return err })
	return v, err
}

// Store64 writes the word at an address; faults as CopyIn.
func (m *Implicit) Store64(addr, v uint64) error {
	return m.with(addr, 8, func(mem Memory, off uint64) error { return mem.Store64(off, v) })
}

// CompareSwap64 compares and swaps the word at an address; faults as CopyIn.
func (m *Implicit) CompareSwap64(addr, compare, swap uint64) (old uint64, err error) {
	err = m.with(addr, 8, func(mem Memory, off uint64) (err error) {
		old, err = mem.CompareSwap64(off, compare, swap)
		return err
	})
	return old, err
}

// FetchAdd64 adds to the word at an address; faults as CopyIn.
func (m *Implicit) FetchAdd64(addr, add uint64) (old uint64, err error) {
	err = m.with(addr, 8, func(mem Memory, off uint64) (err error) { old, err = mem.FetchAdd64(off, add); return err })
	return old, err
}

// Present reports whether n bytes at an address can be touched now. It is true
// of a hole, which the access shows.
func (m *Implicit) Present(addr, n uint64, write bool) bool {
	if a := m.enter(addr, n); a != nil {
		defer a.leave()
		if p, ok := a.mem.(PagedMemory); ok {
			return p.Present(addr-a.addr, n, write)
		}
	}
	return true
}

// Fetch fetches n bytes at an address, if they are allowed.
func (m *Implicit) Fetch(addr, n uint64, write bool) {
	a := m.enter(addr, n)
	if a == nil {
		return
	}
	a.fetching.Add(1) // before it is left, so that Revoke sees the one or the other
	defer a.fetching.Add(-1)
	a.leave()
	if p, ok := a.mem.(PagedMemory); ok {
		p.Fetch(addr-a.addr, n, write)
	}
}
