package foreign

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"golang.org/x/sys/unix"
)

// Region is memory of a process, as a memreg.Memory. It is deregistered before
// it is closed.
type Region struct {
	space *Space
	addr  uint64
	n     uint64
	parts []part // in order; together they are all of it
	bytes []byte // if it is mapped in one piece
}

// part is a part of a region that is reached in one way.
type part struct {
	end    uint64        // in the region
	shared memreg.Memory // mapped here; nil if it must be copied
	m      *mapping
}

// Region returns n bytes at addr of the process as a memory, a *Region: to be
// written too, or only read. The error wraps EFAULT where the process has not
// all of it with that right, or as pages that somebody else than the system
// brings. What becomes of its protection later is not looked at; what is
// unmapped later is ib.FaultMemory.
func (s *Space) Region(addr, n uint64, write bool) (memreg.Memory, error) {
	if addr+n < addr || addr+n > maxAddress || n > uint64(maxInt) {
		return nil, fmt.Errorf("%w: %w", unix.EFAULT, errTooLong)
	}
	if !s.acquire() { // for the region
		return nil, errClosed
	}
	if !s.running() {
		s.Close()
		return nil, fmt.Errorf("%w: process %d has ended", unix.EFAULT, s.pid)
	}
	if err := s.check(addr, n, write); err != nil {
		s.Close()
		return nil, err
	}
	r := &Region{space: s, addr: addr, n: n}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mapped.cut(r)
	return r, nil
}

// maxAddress is behind what addresses a process has that this one can reach.
const maxAddress = uint64(^uintptr(0)) & (1<<63 - 1)

// cut gives r its parts.
func (m ranges) cut(r *Region) {
	at, end := r.addr, r.addr+r.n
	add := func(to uint64, shared []byte, of *mapping) {
		p := part{end: to - r.addr, m: of}
		if of != nil {
			of.users.Add(1)
			p.shared = memreg.Local(shared)
		}
		r.parts = append(r.parts, p)
		at = to
	}
	for i := m.from(at); i < len(m) && m[i].start < end; i++ {
		if m[i].start > at {
			add(m[i].start, nil, nil)
		}
		to := min(m[i].end, end)
		add(to, m[i].bytes(at, to), m[i].m)
	}
	if at < end {
		add(end, nil, nil)
	}
	if len(r.parts) == 1 && r.parts[0].shared != nil {
		r.bytes = r.parts[0].shared.Bytes()
	}
}

// Close gives back what is mapped for the region alone.
func (r *Region) Close() error {
	for _, p := range r.parts {
		if p.m != nil {
			p.m.release()
		}
	}
	r.parts, r.bytes = nil, nil
	if r.space.copier != nil {
		r.space.settled()
	}
	return r.space.Close()
}

// Mapped reports whether all of the region is mapped here, so that atomics are
// atomic towards the process.
func (r *Region) Mapped() bool {
	for _, p := range r.parts {
		if p.shared == nil {
			return false
		}
	}
	return true
}

// Len implements memreg.Memory.
func (r *Region) Len() uint64 { return r.n }

// Bytes implements memreg.Memory.
func (r *Region) Bytes() []byte { return r.bytes }

// find returns the part that has byte off, and where that begins.
func (r *Region) find(off uint64) (p *part, start uint64) {
	i := 0
	if len(r.parts) > 1 {
		i = sort.Search(len(r.parts), func(i int) bool { return r.parts[i].end > off })
	}
	if i > 0 {
		start = r.parts[i-1].end
	}
	return &r.parts[i], start
}

// inside reports whether n bytes at off are in the region.
func (r *Region) inside(off uint64, n int) bool { return off <= r.n && uint64(n) <= r.n-off }

// CopyIn implements memreg.Memory.
func (r *Region) CopyIn(off uint64, src []byte) error {
	if !r.inside(off, len(src)) {
		return ib.FaultOutOfBounds
	}
	for len(src) > 0 {
		p, start := r.find(off)
		n := min(p.end-off, uint64(len(src)))
		var err error
		if p.shared != nil {
			err = p.shared.CopyIn(off-start, src[:n])
		} else {
			err = r.space.write(r.addr+off, src[:n])
		}
		if err != nil {
			return err
		}
		src, off = src[n:], off+n
	}
	return nil
}

// CopyOut implements memreg.Memory.
func (r *Region) CopyOut(dst []byte, off uint64) error {
	if !r.inside(off, len(dst)) {
		return ib.FaultOutOfBounds
	}
	for len(dst) > 0 {
		p, start := r.find(off)
		n := min(p.end-off, uint64(len(dst)))
		var err error
		if p.shared != nil {
			err = p.shared.CopyOut(dst[:n], off-start)
		} else {
			err = r.space.read(dst[:n], r.addr+off)
		}
		if err != nil {
			return err
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// CopyInV implements memreg.VectorMemory.
func (r *Region) CopyInV(off uint64, src [][]byte) error {
	size := 0
	for _, b := range src {
		size += len(b)
	}
	if !r.inside(off, size) {
		return ib.FaultOutOfBounds
	}
	if size == 0 {
		return nil
	}
	if p, _ := r.find(off); p.shared == nil && off+uint64(size) <= p.end {
		return r.space.writeV(r.addr+off, src)
	}
	for _, b := range src {
		if err := r.CopyIn(off, b); err != nil {
			return err
		}
		off += uint64(len(b))
	}
	return nil
}

// word returns the part with the 64-bit word at off, and where in it that is.
// Parts are of whole pages, so it has all of the word.
func (r *Region) word(off uint64) (p *part, at uint64, f ib.Fault) {
	if !r.inside(off, 8) {
		return nil, 0, ib.FaultOutOfBounds
	}
	if (r.addr+off)%8 != 0 {
		return nil, 0, ib.FaultMisaligned
	}
	p, start := r.find(off)
	return p, off - start, ib.FaultNone
}

// update replaces a word that is not mapped by what f makes of it, unless that
// is to leave it, and returns what it was.
func (r *Region) update(off uint64, f func(old uint64) (v uint64, store bool)) (old uint64, err error) {
	s := r.space
	s.atomics.Lock()
	defer s.atomics.Unlock()
	var b [8]byte
	if err := s.read(b[:], r.addr+off); err != nil {
		return 0, err
	}
	old = binary.NativeEndian.Uint64(b[:])
	v, store := f(old)
	if !store {
		return old, nil
	}
	binary.NativeEndian.PutUint64(b[:], v)
	return old, s.write(r.addr+off, b[:])
}

// Load64 implements memreg.Memory.
func (r *Region) Load64(off uint64) (uint64, error) {
	p, at, f := r.word(off)
	switch {
	case f != ib.FaultNone:
		return 0, f
	case p.shared != nil:
		return p.shared.Load64(at)
	}
	return r.update(off, func(uint64) (uint64, bool) { return 0, false })
}

// Store64 implements memreg.Memory.
func (r *Region) Store64(off, v uint64) error {
	p, at, f := r.word(off)
	switch {
	case f != ib.FaultNone:
		return f
	case p.shared != nil:
		return p.shared.Store64(at, v)
	}
	_, err := r.update(off, func(uint64) (uint64, bool) { return v, true })
	return err
}

// CompareSwap64 implements memreg.Memory.
func (r *Region) CompareSwap64(off, compare, swap uint64) (uint64, error) {
	p, at, f := r.word(off)
	switch {
	case f != ib.FaultNone:
		return 0, f
	case p.shared != nil:
		return p.shared.CompareSwap64(at, compare, swap)
	}
	return r.update(off, func(old uint64) (uint64, bool) { return swap, old == compare })
}

// FetchAdd64 implements memreg.Memory.
func (r *Region) FetchAdd64(off, add uint64) (uint64, error) {
	p, at, f := r.word(off)
	switch {
	case f != ib.FaultNone:
		return 0, f
	case p.shared != nil:
		return p.shared.FetchAdd64(at, add)
	}
	return r.update(off, func(old uint64) (uint64, bool) { return old + add, true })
}
