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

// Errors of Register and DeallocPD. They come wrapped with the details.
var (
	ErrPD        = errors.New("memreg: not a protection domain of this table")
	ErrPDInUse   = errors.New("memreg: protection domain still has regions or windows")
	ErrMemory    = errors.New("memreg: no usable memory")
	ErrLength    = errors.New("memreg: bad region length")  // 0, or not that of the memory
	ErrAccess    = errors.New("memreg: bad access rights")  // unknown, or they need another
	ErrAddress   = errors.New("memreg: bad region address") // wraps, or does not fit Options.Base
	ErrExhausted = errors.New("memreg: no key left")        // ib.MaxMR regions, or MaxGrants
)

// PD is a protection domain. A region can be used only together with objects of
// its own domain (IBTA 10.2.3).
type PD struct {
	table   *Table // nil once deallocated
	regions atomic.Int64
	windows int
}

// Regions is the number of regions registered in the domain.
func (pd *PD) Regions() int { return int(pd.regions.Load()) }

// Table holds the memory regions and grants of one device. See the package
// documentation for what may be called at the same time.
type Table struct {
	keys    keyTable
	random  func() uint32
	regions atomic.Int64
	grants  int // besides the two of each region
	windows windowTable
	watch   func(Access) // or nil
}

// NewTable returns an empty table. Its keys are the values of random, which
// must be unpredictable for peers. Only what is serialised with Register calls
// it. NewTable panics if random is nil.
func NewTable(random func() uint32) *Table {
	if random == nil {
		panic("memreg: NewTable needs a source of random keys")
	}
	t := &Table{random: random}
	t.keys.init()
	t.windows.keys.init()
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
	if pd.windows != 0 {
		return fmt.Errorf("%w: %d windows, free them first", ErrPDInUse, pd.windows)
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

	// Key is the rkey to have, if it is not 0: a peer was told it before
	// there was a region. It is random, and others cannot guess it.
	Key ib.Key

	// Invalidatable lets Table.Invalidate end the rkey.
	Invalidatable bool
}

// Regions is the number of registered regions. Unlike Register it may be called
// at any time.
func (t *Table) Regions() int { return int(t.regions.Load()) }

// All yields every registered region, in no order. It is serialised with
// Register. The loop may Deregister.
func (t *Table) All() iter.Seq[*Region] {
	return func(yield func(*Region) bool) {
		buckets := *t.keys.buckets.Load()
		for i := range buckets {
			b := &buckets[i]
			for j := range b.keys {
				key := ib.Key(b.keys[j].Load())
				g := b.grants[j].Load()
				if key != 0 && g != nil && g == &g.region.remote && !yield(g.region) {
					return
				}
			}
		}
	}
}

// Register makes m a region of pd with two new random keys. It refuses, with an
// error that wraps the sentinel:
//
//   - ErrPD for a domain that is not a live one of t, ErrMemory for a nil m.
//   - ErrLength for length 0, as most adapters do (EINVAL), and for a length
//     that Bytes contradicts.
//   - ErrAccess for unknown rights, for remote write or atomic without local
//     write (IBTA 11.2.8.2), for local write on read-only memory, and for
//     FlushPersistent on memory that is not a PersistentMemory.
//   - ErrAddress for a region that would wrap around the end of the address
//     space, for BaseReal without local bytes, and for an IOVA that Base does
//     not ask for.
//   - ErrExhausted beyond ib.MaxMR, or when the random source repeats itself,
//     or for an Options.Key that is not free.
//
// The same memory may be registered several times. Now and then a registration
// copies the key table (amortised constant work).
func (t *Table) Register(pd *PD, m Memory, o Options) (*Region, error) {
	if t.Regions() >= ib.MaxMR {
		return nil, fmt.Errorf("%w: %d regions are registered", ErrExhausted, ib.MaxMR)
	}
	r, err := t.prepare(pd, m, o)
	if err == nil {
		t.publish(r)
	}
	return r, err
}

// prepare makes a region with its keys, which no lookup finds yet.
func (t *Table) prepare(pd *PD, m Memory, o Options) (*Region, error) {
	if pd == nil || pd.table != t {
		return nil, ErrPD
	}
	if err := checkAccess(o.Access); err != nil {
		return nil, err
	}
	r := &Region{pd: pd, mem: m, access: o.Access}
	length, err := r.setMemory()
	if err != nil {
		return nil, err
	}
	if err := r.setBase(o, length); err != nil {
		return nil, err
	}
	t.keys.reserve(2)
	lkey, ok := t.draw(0)
	if !ok {
		return nil, errRandom()
	}
	rkey, ok := t.remoteKey(o.Key, lkey)
	if !ok {
		return nil, errRandom()
	}
	r.local.own(r, lkey, length)
	r.remote.own(r, rkey, length)
	r.remote.kind = kindOf(o.Invalidatable)
	return r, nil
}

// remoteKey returns the key that is asked for, or another one if that is 0.
func (t *Table) remoteKey(want, lkey ib.Key) (ib.Key, bool) {
	if want == 0 {
		return t.draw(lkey)
	}
	return want, t.keys.admit(want, lkey) && !t.windows.has(indexOf(want))
}

// publish lets the keys of a region of prepare be found.
func (t *Table) publish(r *Region) {
	t.keys.insert(r.local.key, &r.local)
	t.keys.insert(r.remote.key, &r.remote)
	t.regions.Add(1)
	r.pd.regions.Add(1)
}

// own makes g one of the region's own grants: all of its bytes, all its rights.
func (g *Grant) own(r *Region, key ib.Key, length uint64) {
	g.region, g.key, g.length, g.rights = r, key, length, rightsOf(r.access)
}

func errRandom() error {
	return fmt.Errorf("%w: the random source yields only keys in use, or the key that is asked for is", ErrExhausted)
}

func checkAccess(a ib.Access) error {
	if bad := a &^ ib.AccessMask; bad != 0 {
		return fmt.Errorf("%w: unknown bits %#x", ErrAccess, uint32(bad))
	}
	if a&(ib.RemoteWrite|ib.RemoteAtomic) != 0 && a&ib.LocalWrite == 0 {
		return fmt.Errorf("%w: %v needs LocalWrite too", ErrAccess, a&(ib.RemoteWrite|ib.RemoteAtomic))
	}
	return nil
}

// setMemory finds out the length of the region's memory and what it can do.
func (r *Region) setMemory() (length uint64, err error) {
	if r.mem == nil {
		return 0, fmt.Errorf("%w: nil", ErrMemory)
	}
	length = r.mem.Len()
	if length == 0 {
		return 0, fmt.Errorf("%w: 0 bytes", ErrLength)
	}
	if b := r.mem.Bytes(); b != nil {
		if uint64(len(b)) != length {
			return 0, fmt.Errorf("%w: Len is %d but there are %d bytes", ErrLength, length, len(b))
		}
		r.data = &b[0]
	}
	if _, ok := r.mem.(PagedMemory); ok {
		if r.data == nil {
			r.access |= isPaged
		}
	}
	if _, ok := r.mem.(SparseMemory); ok {
		r.access |= isSparse
	}
	if _, ok := r.mem.(*guarded); ok {
		r.access |= isGuarded
	}
	if err := checkPersistent(r.mem, r.access); err != nil {
		return 0, err
	}
	if ro, ok := r.mem.(ReadOnlyMemory); ok && ro.ReadOnly() {
		if r.access&ib.LocalWrite != 0 {
			return 0, fmt.Errorf("%w: LocalWrite on read-only memory", ErrAccess)
		}
		r.access |= isSealed
	}
	return length, nil
}

// setBase chooses the region's address.
func (r *Region) setBase(o Options, length uint64) error {
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
		if r.data == nil {
			return fmt.Errorf("%w: memory that is not local has no real address, choose an IOVA or zero-based", ErrAddress)
		}
		r.base = uint64(uintptr(unsafe.Pointer(r.data)))
	case BaseIOVA:
		r.base = o.IOVA
	case BaseZero:
		r.access |= ib.ZeroBased
	default:
		return fmt.Errorf("%w: unknown base kind %d", ErrAddress, base)
	}
	if length > math.MaxUint64-r.base {
		return fmt.Errorf("%w: %d bytes at %#x wrap around the end of the address space", ErrAddress, length, r.base)
	}
	return nil
}

// Deregister ends a region. Its keys are dead at once: Resolve and Acquire fail
// from now on. Then Deregister waits, yielding the processor, until nothing
// holds a pin. When it returns, no view of the region is in use and the memory
// may go. The caller must hold no pin on the region itself. The keys are not
// given out again before thousands of other keys have been killed. A region
// that is not (or no longer) registered in t is left alone.
//
// While the region has grants of [Table.Grant] it stays as it is, and the error
// wraps ErrRegionInUse (IBTA 10.6.7.2.6; EBUSY of ibv_dereg_mr).
func (t *Table) Deregister(r *Region) error {
	if r == nil || r.pd.table != t || !r.Alive() {
		return nil
	}
	if !r.bound.seal() {
		return r.inUse()
	}
	t.retire(r)
	return nil
}

// retire ends a region that nothing can be bound to any more.
func (t *Table) retire(r *Region) {
	t.keys.kill(r.local.key)
	t.keys.kill(r.remote.key)
	t.regions.Add(-1)
	r.pd.regions.Add(-1)
	endGrants(r)
	t.keys.trim()
}

// endGrants ends the grants of a region, and waits for what uses them.
func endGrants(r *Region) {
	r.local.kill() // first, see Invalidated
	r.remote.kill()
	r.local.drain()
	r.remote.drain()
}
