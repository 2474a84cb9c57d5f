package memreg

import (
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
)

// Memory is what a region stands on. Offsets and lengths are bytes from its
// start. Len and Bytes are constant for as long as a region stands on it. All
// methods may be called on any goroutine at the same time, and must neither
// block (see PagedMemory) nor panic: memory that cannot be reached is an error,
// which becomes ib.FaultMemory unless the error is (or wraps) a Fault.
//
// The 64-bit methods hold the value in the byte order of this machine and are
// atomic towards each other. An offset whose word is not aligned is
// ib.FaultMisaligned. A region checks offsets against Len before it calls.
type Memory interface {
	// Len is the size in bytes.
	Len() uint64
	// Bytes is the memory itself, of length Len, where it is memory of this
	// process that is always accessible; nil where it is not.
	Bytes() []byte
	// CopyIn writes src at off. After an error any part may have been
	// written.
	CopyIn(off uint64, src []byte) error
	// CopyOut reads len(dst) bytes at off.
	CopyOut(dst []byte, off uint64) error
	// Load64 reads the word at off.
	Load64(off uint64) (uint64, error)
	// Store64 writes the word at off.
	Store64(off, v uint64) error
	// CompareSwap64 writes swap if the word equals compare and returns the
	// word before.
	CompareSwap64(off, compare, swap uint64) (old uint64, err error)
	// FetchAdd64 adds modulo 2^64 and returns the word before.
	FetchAdd64(off, add uint64) (old uint64, err error)
}

// ReadOnlyMemory is a Memory that may say that it cannot be written. A region
// on it gets no LocalWrite, and writing it faults with ib.FaultNoAccess.
type ReadOnlyMemory interface {
	Memory
	ReadOnly() bool
}

// SparseMemory is a Memory with holes, which no access may touch: one that does
// is ib.FaultOutOfBounds, as beside a region.
type SparseMemory interface {
	Memory
	// Contains reports whether n bytes at off, which are inside of Len, can
	// be accessed. It may be called at any time, as the other methods, and
	// its answer may change: they check again.
	Contains(off, n uint64) bool
}

// Local returns b as a Memory. The caller keeps b in place and accessible until
// regions on it are deregistered (ordinary Go memory always is). Its methods
// return ib.FaultOutOfBounds and ib.FaultMisaligned; alignment is that of the
// real address.
func Local(b []byte) Memory { return local(b) }

type local []byte

func (m local) Len() uint64   { return uint64(len(m)) }
func (m local) Bytes() []byte { return m }

// inside reports whether n bytes at off are in memory of size bytes, without
// wrapping.
func inside(off, n, size uint64) bool { return off <= size && n <= size-off }

func (m local) CopyIn(off uint64, src []byte) error {
	if !inside(off, uint64(len(src)), uint64(len(m))) {
		return ib.FaultOutOfBounds
	}
	copy(m[off:], src)
	return nil
}

func (m local) CopyOut(dst []byte, off uint64) error {
	if !inside(off, uint64(len(dst)), uint64(len(m))) {
		return ib.FaultOutOfBounds
	}
	copy(dst, m[off:])
	return nil
}

// word returns the aligned 64-bit word at off.
func (m local) word(off uint64) (*uint64, ib.Fault) {
	if !inside(off, 8, uint64(len(m))) {
		return nil, ib.FaultOutOfBounds
	}
	p := unsafe.Pointer(&m[off])
	if uintptr(p)%8 != 0 {
		return nil, ib.FaultMisaligned
	}
	return (*uint64)(p), ib.FaultNone
}

func (m local) Load64(off uint64) (uint64, error) {
	p, f := m.word(off)
	if f != ib.FaultNone {
		return 0, f
	}
	return atomic.LoadUint64(p), nil
}

func (m local) Store64(off, v uint64) error {
	p, f := m.word(off)
	if f != ib.FaultNone {
		return f
	}
	atomic.StoreUint64(p, v)
	return nil
}

func (m local) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	p, f := m.word(off)
	if f != ib.FaultNone {
		return 0, f
	}
	return compareSwap64(p, compare, swap), nil
}

func (m local) FetchAdd64(off, add uint64) (uint64, error) {
	p, f := m.word(off)
	if f != ib.FaultNone {
		return 0, f
	}
	return atomic.AddUint64(p, add) - add, nil
}

// compareSwap64 returns the value before, which sync/atomic does not. A value
// that differs from compare is an atomic answer by itself.
func compareSwap64(p *uint64, compare, swap uint64) uint64 {
	for {
		if old := atomic.LoadUint64(p); old != compare {
			return old
		}
		if atomic.CompareAndSwapUint64(p, compare, swap) {
			return compare
		}
	}
}
