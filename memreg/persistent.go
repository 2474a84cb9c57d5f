package memreg

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// PersistentMemory is a Memory that may outlive the machine's power: that of a
// file on a disk. Only a region on such memory may have the right
// ib.FlushPersistent.
type PersistentMemory interface {
	Memory
	// Persistent reports whether Persist can do what it says. It is
	// constant.
	Persistent() bool
	// Persist brings n bytes at off to stable storage, as they are when it
	// is called, and blocks until they are there. An error says that some
	// may not be.
	Persist(off, n uint64) error
}

// persistent returns the memory of a region as one that can be persisted, nil
// if it cannot.
func persistent(m Memory) PersistentMemory {
	if p, ok := m.(PersistentMemory); ok && p.Persistent() {
		return p
	}
	return nil
}

// checkPersistent refuses ib.FlushPersistent for memory that has no storage
// below it.
func checkPersistent(m Memory, a ib.Access) error {
	if a&ib.FlushPersistent != 0 && persistent(m) == nil {
		return fmt.Errorf("%w: FlushPersistent needs memory that a file on a disk backs, mapped shared and for writing; this has none",
			ErrAccess)
	}
	return nil
}

// persist brings a part of the region to stable storage.
func (r *Region) persist(off, n uint64) ib.Fault {
	p := persistent(r.mem)
	if p == nil {
		return ib.FaultMemory
	}
	return faultOf(p.Persist(off, n))
}

// Persist returns what to do so that the bytes of the view are on stable
// storage. The view may be released before it is done.
func (v View) Persist() Missing {
	return Missing{Region: v.Region(), Off: v.off, Len: v.n, Persist: true}
}

// ResolveAll is Resolve for an access to all that the key stands for, whatever
// the address. Of sparse memory there may be holes in it.
func (t *Table) ResolveAll(pd *PD, qpn rocev2.QPN, key ib.Key, need ib.Access) (View, ib.Fault) {
	g := t.lookup(key)
	if g == nil || g.key != key || g.local() {
		return View{}, ib.FaultUnknownKey
	}
	v, f := g.view(pd, qpn, g.Addr(), 0, need)
	if f == ib.FaultNone {
		v.n = g.length
	}
	return v, f
}
