package memreg

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// MaxRegions is how many regions one table holds at a time.
const MaxRegions = 1 << 24

// Errors of Register and DeallocPD; they come wrapped with the details.
var (
	ErrPD        = errors.New("memreg: not a protection domain of this table")
	ErrPDInUse   = errors.New("memreg: protection domain still has regions")
	ErrMemory    = errors.New("memreg: no usable memory")
	ErrLength    = errors.New("memreg: bad region length")  // 0, or another than the memory's
	ErrAccess    = errors.New("memreg: bad access rights")  // unknown, or without the LocalWrite that they need
	ErrAddress   = errors.New("memreg: bad region address") // wraps around, or does not fit Options.Base
	ErrExhausted = errors.New("memreg: no key left")        // MaxRegions are registered
)

// PD is a protection domain: a region can be used only together with objects of
// its own domain (IBTA 10.2.3).
type PD struct {
	table   *Table // nil once deallocated
	regions atomic.Int64
}

// Regions is the number of regions registered in the domain.
func (pd *PD) Regions() int { return int(pd.regions.Load()) }

// Table holds the memory regions of one device. See the package documentation for
// what may be called at the same time.
type Table struct {
	keys    keyTable
	random  func() uint32
	regions atomic.Int64
}

// NewTable returns an empty table. Its keys are the values of random, which must
// be unpredictable for peers; it is called by Register only. NewTable panics if
// random is nil.
func NewTable(random func() uint32) *Table {
	if random == nil {
		panic("memreg: NewTable needs a source of random keys")
	}
	t := &Table{random: random}
	t.keys.init()
	return t
}

// AllocPD returns a new protection domain.
func (t *Table) AllocPD() *PD { return &PD{table: t} }

// DeallocPD ends a protection domain: ErrPDInUse while it has regions, ErrPD if
// it is not a live domain of this table.
func (t *Table) DeallocPD(pd *PD) error {
	if pd == nil || pd.table != t {
		return ErrPD
	}
	if n := pd.Regions(); n != 0 {
		return fmt.Errorf("%w: %d, deregister them first", ErrPDInUse, n)
	}
	pd.table = nil
	return nil
}

// BaseKind says what the address of a region's first byte is.
type BaseKind uint8

const (
	BaseReal BaseKind = iota // the real address of the local bytes
	BaseIOVA                 // Options.IOVA
	BaseZero                 // 0: addresses are offsets
)

// Options of a registration. The zero value registers for local reading, at the
// real address.
type Options struct {
	Access ib.Access
	IOVA   uint64 // the address of the first byte, with BaseIOVA only
	Base   BaseKind
	Owner  any // kept for the caller, see Region.Owner

	// Invalidatable lets a peer end the rkey with a SEND with invalidate.
	Invalidatable bool
}

// Regions is the number of registered regions. Unlike Register it may be called
// at any time.
func (t *Table) Regions() int { return int(t.regions.Load()) }

// All yields every registered region, in no order. It is serialised with
// Register; the loop may Deregister.
func (t *Table) All() iter.Seq[*Region] {
	return func(yield func(*Region) bool) {
		buckets := *t.keys.buckets.Load()
		for i := range buckets {
			b := &buckets[i]
			for j := range b.keys {
				key := ib.Key(b.keys[j].Load())
				r := b.regions[j].Load()
				if key != 0 && r != nil && r.rkey == key && !yield(r) {
					return
				}
			}
		}
	}
}

// Register makes m a region of pd with two new random keys. It refuses, with
// an error that wraps the sentinel: ErrPD; ErrMemory for a nil m; ErrLength for
// length 0, as most adapters do (EINVAL), and for a length that Bytes contradicts;
// ErrAccess for unknown rights, for remote write or atomic without local write
// (IBTA 11.2.8.2), and for local write on read-only memory; ErrAddress for a region that would wrap around the end
// of the address space, for BaseReal without local bytes, and for an IOVA that
// Base does not ask for; ErrExhausted beyond MaxRegions or when the random
// source repeats itself.
//
// The same memory may be registered several times. Now and then a registration
// copies the key table (amortised constant work).
func (t *Table) Register(pd *PD, m Memory, o Options) (*Region, error) {
	if pd == nil || pd.table != t {
		return nil, ErrPD
	}
	if err := checkAccess(o.Access); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, fmt.Errorf("%w: nil", ErrMemory)
	}
	r := &Region{pd: pd, mem: m, table: t, owner: o.Owner, access: o.Access, length: m.Len(),
		invalidatable: o.Invalidatable}
	if r.length == 0 {
		return nil, fmt.Errorf("%w: 0 bytes", ErrLength)
	}
	if b := m.Bytes(); b != nil {
		if uint64(len(b)) != r.length {
			return nil, fmt.Errorf("%w: Len is %d but there are %d bytes", ErrLength, r.length, len(b))
		}
		r.bytes = b
	}
	if _, ok := m.(PagedMemory); ok {
		r.paged = r.bytes == nil
	}
	if ro, ok := m.(ReadOnlyMemory); ok && ro.ReadOnly() {
		if o.Access&ib.LocalWrite != 0 {
			return nil, fmt.Errorf("%w: LocalWrite on read-only memory", ErrAccess)
		}
		r.sealed = true
	}
	if err := r.setBase(o); err != nil {
		return nil, err
	}
	if t.Regions() >= MaxRegions {
		return nil, fmt.Errorf("%w: %d regions are registered", ErrExhausted, MaxRegions)
	}
	t.keys.reserve(2)
	var ok bool
	if r.lkey, ok = t.keys.draw(t.random, 0); ok {
		r.rkey, ok = t.keys.draw(t.random, r.lkey)
	}
	if !ok {
		return nil, fmt.Errorf("%w: the random source yields only keys in use", ErrExhausted)
	}
	t.keys.insert(r.lkey, r)
	t.keys.insert(r.rkey, r)
	t.regions.Add(1)
	pd.regions.Add(1)
	return r, nil
}

func checkAccess(a ib.Access) error {
	if bad := a &^ accessKnown; bad != 0 {
		return fmt.Errorf("%w: unknown bits %#x", ErrAccess, uint32(bad))
	}
	if a&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && a&ib.LocalWrite == 0 {
		return fmt.Errorf("%w: %v needs LocalWrite too", ErrAccess, a&(ib.RemoteWrite|ib.RemoteAtomic))
	}
	return nil
}

// setBase chooses the region's address.
func (r *Region) setBase(o Options) error {
	base := o.Base
	if o.Access&ib.ZeroBased != 0 {
		if base == BaseIOVA {
			return fmt.Errorf("%w: both zero-based and an IOVA asked for", ErrAddress)
		}
		base = BaseZero
	}
	if base != BaseIOVA && o.IOVA != 0 {
		return fmt.Errorf("%w: IOVA %#x given without BaseIOVA", ErrAddress, o.IOVA)
	}
	switch base {
	case BaseReal:
		if r.bytes == nil {
			return fmt.Errorf("%w: memory that is not local has no real address, choose an IOVA or zero-based", ErrAddress)
		}
		r.base = uint64(uintptr(unsafe.Pointer(&r.bytes[0])))
	case BaseIOVA:
		r.base = o.IOVA
	case BaseZero:
		r.access |= ib.ZeroBased
	default:
		return fmt.Errorf("%w: unknown base kind %d", ErrAddress, base)
	}
	if r.length > math.MaxUint64-r.base {
		return fmt.Errorf("%w: %d bytes at %#x wrap around the end of the address space", ErrAddress, r.length, r.base)
	}
	return nil
}

// Deregister ends a region. Its keys are dead at once: Resolve and Acquire fail
// from now on. Then it waits, yielding the processor, until nothing holds a pin;
// when it returns no view of the region is in use and the memory may go. The
// caller must hold no pin on the region itself. The keys are not given out again
// before thousands of other keys have been killed. A region that is not (or no
// longer) registered in t is left alone.
func (t *Table) Deregister(r *Region) {
	if r == nil || r.table != t || !r.Alive() {
		return
	}
	t.keys.kill(r.lkey)
	t.keys.kill(r.rkey)
	t.regions.Add(-1)
	r.pd.regions.Add(-1)
	r.kill()
	t.keys.trim()
}

// Invalidate ends the rkey of a region that was registered for it, as a SEND with
// invalidate asks (IBTA 9.4.1.1.3 and 10.6.5): remote accesses that are checked from
// now on meet UnknownKey. Local use goes on, and the region stays registered. A
// view that another goroutine holds meanwhile is not waited for. It may be called
// at the same time as everything else. Faults: UnknownKey, also the second time;
// WrongPD; NoAccess if the region was not registered for it.
func (t *Table) Invalidate(pd *PD, key ib.Key) ib.Fault {
	r := t.keys.lookup(key)
	switch {
	case r == nil || r.rkey != key || !r.Alive():
		return ib.FaultUnknownKey
	case r.pd != pd:
		return ib.FaultWrongPD
	case !r.invalidatable:
		return ib.FaultNoAccess
	case r.invalid.Swap(true):
		return ib.FaultUnknownKey
	}
	return ib.FaultNone
}
