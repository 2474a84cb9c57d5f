package memreg

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// ErrFastInUse is what Map returns for a fast registration region that is
// valid, or freed.
var ErrFastInUse = errors.New("memreg: fast registration region is not free")

// FastRegion is a region that a work request registers (IBTA 10.6.3.3 and
// 11.2.8.4): its keys are there before its memory is. It is free or valid. A
// free one is given memory by Map, which stays with it, and made valid by
// RegisterFast, with new low bytes of its keys. Invalidate makes it free again.
type FastRegion struct {
	pd     *PD
	max    uint64 // bytes
	lkey   slot
	rkey   slot
	state  atomic.Int32
	mapped atomic.Pointer[Memory]
}

// The states of a FastRegion. While one is busy, only the goroutine that made
// it busy changes it.
const (
	fastFree int32 = iota
	fastBusy
	fastValid
	fastGone
)

// registered is one life of a FastRegion, as all others see it.
type registered struct {
	Region // first: see invalidateFast
	of     *FastRegion
}

// AllocFast makes a fast registration region of pd for at most max bytes. It is
// serialised with Register. The error wraps ErrPD, ErrLength for 0 bytes, or
// ErrExhausted (ib.MaxMW, or ib.MaxMR with the ordinary regions).
func (t *Table) AllocFast(pd *PD, max uint64) (*FastRegion, error) {
	switch {
	case pd == nil || pd.table != t:
		return nil, ErrPD
	case max == 0:
		return nil, fmt.Errorf("%w: 0 bytes", ErrLength)
	case t.windows.fast >= ib.MaxMW:
		return nil, fmt.Errorf("%w: there are %d fast registration regions", ErrExhausted, ib.MaxMW)
	case t.Regions() >= ib.MaxMR:
		return nil, fmt.Errorf("%w: %d regions are registered", ErrExhausted, ib.MaxMR)
	}
	t.windows.keys.reserve(2)
	lkey, ok := t.drawIndex(0)
	if !ok {
		return nil, errRandom()
	}
	rkey, ok := t.drawIndex(lkey)
	if !ok {
		return nil, errRandom()
	}
	rkey = rkey&^(keyVariants-1) | lkey&(keyVariants-1)
	f := &FastRegion{pd: pd, max: max}
	for _, k := range [...]struct {
		*slot
		key ib.Key
	}{{&f.lkey, lkey}, {&f.rkey, rkey}} {
		k.fast = f
		k.current.Store(newDead(k.key))
		t.windows.keys.insert(indexOf(k.key), &k.head)
	}
	t.windows.fast++
	t.regions.Add(1)
	pd.regions.Add(1)
	return f, nil
}

// FreeFast frees a fast registration region, valid or not. It is what
// Deregister is to others, and ErrRegionInUse too. One that was freed, or is
// not of t, is left alone.
func (t *Table) FreeFast(f *FastRegion) error {
	if f == nil || f.pd.table != t || f.state.Load() == fastGone {
		return nil
	}
	for !f.state.CompareAndSwap(fastFree, fastGone) {
		if f.state.Load() != fastValid {
			continue
		}
		// Only now: what a free one has is not of a registration.
		if g := f.rkey.current.Load(); g.invalidateFast() == ib.FaultState {
			return g.region.inUse()
		}
	}
	for _, s := range []*slot{&f.lkey, &f.rkey} {
		t.windows.keys.kill(indexOf(s.current.Swap(noGrant).key))
	}
	t.windows.fast--
	t.regions.Add(-1)
	f.pd.regions.Add(-1)
	f.mapped.Store(nil)
	t.windows.keys.trim()
	return nil
}

// PD is the protection domain of the region.
func (f *FastRegion) PD() *PD { return f.pd }

// Max is how many bytes the region may have.
func (f *FastRegion) Max() uint64 { return f.max }

// LKey is the lkey that the region has now, or had last; 0 once it is freed.
func (f *FastRegion) LKey() ib.Key { return f.lkey.current.Load().key }

// RKey is the rkey that the region has now, or had last; 0 once it is freed.
func (f *FastRegion) RKey() ib.Key { return f.rkey.current.Load().key }

// Valid reports whether the region is registered.
func (f *FastRegion) Valid() bool { return f.state.Load() == fastValid }

// Map says which memory RegisterFast is of from now on. It may be called at the
// same time as everything else. It refuses with ErrFastInUse while the region
// is valid, with ErrMemory for a nil m, and with ErrLength for no bytes, or
// more than the region was made for.
func (f *FastRegion) Map(m Memory) error {
	switch {
	case f.state.Load() != fastFree:
		return fmt.Errorf("%w: invalidate it first", ErrFastInUse)
	case m == nil:
		return fmt.Errorf("%w: nil", ErrMemory)
	case m.Len() == 0 || m.Len() > f.max:
		return fmt.Errorf("%w: %d bytes; the region was made for 1 to %d", ErrLength, m.Len(), f.max)
	}
	f.mapped.Store(&m)
	return nil
}

// RegisterFast makes a fast registration region valid, for a work request of a
// queue pair of pd (IBTA 11.4.1.1, fast register physical MR). It may be called
// at the same time as everything else. Nothing changes on a fault:
//
//   - ib.FaultUnknownKey: b.Region is not the rkey of a fast registration
//     region now, or b.NewKey has another index.
//   - ib.FaultWrongPD: it is of another domain.
//   - ib.FaultState: it is valid already, or no memory was mapped to it.
//   - ib.FaultNoAccess: rights that Register refuses, too.
//   - ib.FaultOutOfBounds: the addresses would wrap around.
func (t *Table) RegisterFast(pd *PD, b *ib.RegMR) ib.Fault {
	s := t.slotOf(b.Region)
	if s == nil || s.fast == nil || s != &s.fast.rkey || s.current.Load().key != b.Region || indexOf(b.NewKey) != indexOf(b.Region) {
		return ib.FaultUnknownKey
	}
	f := s.fast
	if f.pd != pd {
		return ib.FaultWrongPD
	}
	if !f.state.CompareAndSwap(fastFree, fastBusy) {
		return ib.FaultState
	}
	r, fault := f.register(b)
	if fault != ib.FaultNone {
		f.state.Store(fastFree)
		return fault
	}
	f.lkey.current.Store(&r.local)
	f.rkey.current.Store(&r.remote)
	f.state.Store(fastValid)
	return ib.FaultNone
}

// register makes what RegisterFast publishes.
func (f *FastRegion) register(b *ib.RegMR) (*registered, ib.Fault) {
	m := f.mapped.Load()
	if m == nil {
		return nil, ib.FaultState
	}
	if checkAccess(b.Access) != nil {
		return nil, ib.FaultNoAccess
	}
	r := &registered{Region: Region{pd: f.pd, mem: *m, access: b.Access}, of: f}
	length, err := r.setMemory()
	if err != nil {
		return nil, ib.FaultNoAccess // to write what is read-only
	}
	o := Options{Access: b.Access, Base: BaseIOVA, IOVA: b.Addr}
	if b.Access&ib.ZeroBased != 0 {
		o.Base, o.IOVA = BaseZero, 0
	}
	if r.setBase(o, length) != nil {
		return nil, ib.FaultOutOfBounds
	}
	low := b.NewKey & (keyVariants - 1)
	r.local.own(&r.Region, f.lkey.current.Load().key&^(keyVariants-1)|low, length)
	r.remote.own(&r.Region, b.NewKey, length)
	r.remote.kind = kindFast
	return r, ib.FaultNone
}

// invalidateFast makes the region free that g is the rkey of.
func (g *Grant) invalidateFast() ib.Fault {
	f := (*registered)(unsafe.Pointer(g.region)).of // its first field
	if !f.state.CompareAndSwap(fastValid, fastBusy) {
		return ib.FaultUnknownKey
	}
	switch {
	case f.rkey.current.Load() != g: // invalidated and registered again meanwhile
		f.state.Store(fastValid)
		return ib.FaultUnknownKey
	case !g.region.bound.seal():
		f.state.Store(fastValid)
		return ib.FaultState
	}
	g.region.local.kill()
	g.kill()
	g.region.local.drain()
	g.drain()
	f.state.Store(fastFree)
	return ib.FaultNone
}
