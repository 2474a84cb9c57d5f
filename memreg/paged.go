package memreg

import "github.com/gosoftroce/rocev2/ib"

// PagedMemory is a Memory without local Bytes whose pages may have to be
// fetched first, from a disk or over a network, which takes any time. A packet
// does not touch a page that is not present: the access meets
// ib.FaultNotPresent. A goroutine that can wait calls Fetch, and the access is
// made again.
//
// The program's own accesses ([Region.CopyIn], Load64 and so on) do not ask
// whether pages are present.
type PagedMemory interface {
	Memory
	// Present reports whether n bytes at off can be read, or written, now
	// without waiting for a page. It does not block. True is also right
	// where the access will fail at once.
	Present(off, n uint64, write bool) bool
	// Fetch fetches n bytes at off for reading, or for writing, and blocks
	// until they are there or cannot be had. Present is true of them
	// afterwards, for a time that is long enough to send a packet again.
	Fetch(off, n uint64, write bool)
}

// fetchAhead is how many bytes are fetched at once if the message or buffer is
// longer than what was asked for.
const fetchAhead = 256 << 10

// Missing is a part of a region that must be fetched, after ib.FaultNotPresent,
// or brought to stable storage. The zero value stands for nothing. It pins
// nothing: the caller of Fetch keeps the memory.
type Missing struct {
	Region  *Region
	Off     uint64 // in the region
	Len     uint64 // bytes
	Write   bool
	Persist bool // to stable storage, see View.Persist
}

// Fetch fetches it, or brings it to stable storage, and blocks meanwhile. The
// region may be deregistered, but its memory must still be there. The fault
// says why the bytes are not on stable storage; one that fetching meets shows
// when the memory is accessed.
func (m Missing) Fetch() ib.Fault {
	if m.Region == nil {
		return ib.FaultNone
	}
	if m.Persist {
		return m.Region.persist(m.Off, m.Len)
	}
	if p, ok := m.Region.mem.(PagedMemory); ok {
		p.Fetch(m.Off, m.Len, m.Write)
	}
	return ib.FaultNone
}

// present reports whether a view may touch n bytes at off of r.
func (r *Region) present(off, n uint64, write bool) bool {
	return r.access&isPaged == 0 || r.mem.(PagedMemory).Present(off, n, write)
}

// Missing returns what to fetch when n bytes at off of the view were
// ib.FaultNotPresent: these, and some of the view that follows.
func (v View) Missing(off, n uint64, write bool) Missing {
	r := v.Region()
	if r == nil || r.access&isPaged == 0 || !inside(off, n, v.n) {
		return Missing{}
	}
	return Missing{Region: r, Off: v.off + off, Len: max(n, min(v.n-off, fetchAhead)), Write: write}
}

// MissingLocal returns what to fetch when Gather or Scatter of n bytes from
// byte off of a list met ib.FaultNotPresent: the first part that is not
// present, and some of its entry that follows. The need is LocalWrite for
// writing and 0 for reading. The zero value says that nothing is missing any
// more.
func (t *Table) MissingLocal(pd *PD, sg []ib.SGE, off, n uint64, need ib.Access) Missing {
	if !inside(off, n, ib.TotalLength(sg)) {
		return Missing{}
	}
	write := need&ib.LocalWrite != 0
	for i := 0; n > 0; i++ {
		size := uint64(sg[i].Length)
		if off >= size {
			off -= size
			continue
		}
		part := min(size-off, n)
		v, f := t.ResolveLocal(pd, sg[i], need)
		if f != ib.FaultNone {
			return Missing{}
		}
		present := v.g.region.present(v.off+off, part, write)
		v.Release()
		if !present {
			return v.Missing(off, part, write)
		}
		n, off = n-part, 0
	}
	return Missing{}
}
