package memreg

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// ErrMWType is wrapped by what AllocWindow returns for a type that there is
// not.
var ErrMWType = errors.New("memreg: unknown type of memory window")

// keyVariants are how many keys a window has: their low byte changes with each
// bind (IBTA 10.6.7.2), and the index above it never does.
const keyVariants = 1 << indexShift

const indexShift = 8

func indexOf(key ib.Key) ib.Key { return key >> indexShift }

// windowTable is the table of what keeps the upper 24 bits of its keys, the
// index: windows and fast registration regions. No other key has their index.
// So the table of keys is the same with and without them, and a lookup that
// finds nothing there looks here.
type windowTable struct {
	keys  keyTable // by index; its grants are the heads of slots
	count int      // windows
	fast  int      // fast registration regions
}

// slot is where a key with a fixed index is found. What the key stands for
// changes at any time, also beside a writer of the tables: the tables have the
// head, and only the slot has what is current.
type slot struct {
	head    Grant // first: see slotOf
	current atomic.Pointer[Grant]
	window  *Window     // whose slot it is,
	fast    *FastRegion // or this one's
}

// noRegion is the region of grants that stand for no memory.
var noRegion Region

// noGrant is what the slot of something that was freed has.
var noGrant = newDead(0)

// newDead returns a grant for nothing.
func newDead(key ib.Key) *Grant {
	g := &Grant{region: &noRegion, key: key}
	g.pins.Store(dead)
	return g
}

// slotOf returns the slot of a key's index, nil if there is none.
func (t *Table) slotOf(key ib.Key) *slot {
	head := t.windows.keys.lookup(indexOf(key))
	if head == nil {
		return nil
	}
	return (*slot)(unsafe.Pointer(head)) // of which it is the first field
}

// lookup returns the grant that key stands for, or nil. The caller compares the
// grant's own key, see keyTable.lookup.
func (t *Table) lookup(key ib.Key) *Grant {
	if g := t.keys.lookup(key); g != nil {
		return g
	}
	return t.inSlot(key)
}

// inSlot is lookup for a key that no region has.
func (t *Table) inSlot(key ib.Key) *Grant {
	if s := t.slotOf(key); s != nil {
		return s.current.Load()
	}
	return nil
}

// draw returns a random key as keyTable.draw does, with no window's index.
func (t *Table) draw(taken ib.Key) (ib.Key, bool) {
	for range maxDraws {
		key, ok := t.keys.draw(t.random, taken)
		if !ok {
			return 0, false
		}
		if !t.windows.has(indexOf(key)) {
			return key, true
		}
	}
	return 0, false
}

// has reports whether an index is in use or in quarantine.
func (t *windowTable) has(index ib.Key) bool {
	return index != 0 && bucketOf(*t.keys.buckets.Load(), index).find(index) >= 0
}

// drawIndex returns a random key whose index nothing has.
func (t *Table) drawIndex(taken ib.Key) (ib.Key, bool) {
	for range maxDraws {
		var low uint32
		index, ok := t.windows.keys.draw(func() uint32 {
			low = t.random()
			return low >> indexShift
		}, indexOf(taken))
		if !ok {
			return 0, false
		}
		if t.freeIndex(index) {
			return index<<indexShift | ib.Key(low%keyVariants), true
		}
	}
	return 0, false
}

// freeIndex reports whether no key of a region has the index, in use or in
// quarantine.
func (t *Table) freeIndex(index ib.Key) bool {
	buckets := *t.keys.buckets.Load()
	for low := range ib.Key(keyVariants) {
		key := index<<indexShift | low
		if bucketOf(buckets, key).find(key) >= 0 {
			return false
		}
	}
	return true
}

// Window is a memory window (IBTA 10.6.7.2): a key for the peer that can be
// made to stand for a part of a region by a work request, and for another part,
// or nothing, by a later one.
//
// Type 1 is for all queue pairs of its protection domain. Each bind gives it a
// new key, and ends the one before. The device chooses the key, unless the
// caller of the bind has chosen it: the drivers of libibverbs know it before
// the bind is carried out.
//
// Type 2 is 2B: it is for the queue pair that has bound it, and for its
// protection domain. The program chooses the low byte of its key. It must be
// invalidated before it is bound again. (With 2A only the queue pair is
// compared. A window, its region and its queue pair have one domain here all
// the same, so a program for 2A sees no difference.)
type Window struct {
	slot slot
	pd   *PD
	typ  ib.MWType
	step uint8 // type 1: from each low byte to the next; odd, so that all 256 are used
}

// Type is the type of the window.
func (w *Window) Type() ib.MWType { return w.typ }

// PD is the protection domain of the window.
func (w *Window) PD() *PD { return w.pd }

// RKey is the key that the window has now. That of a window which is not bound
// stands for nothing yet: a bind names it. It is 0 once the window is freed.
func (w *Window) RKey() ib.Key { return w.slot.current.Load().key }

// Grant is what the window stands for now. It is not Alive when that is
// nothing.
func (w *Window) Grant() *Grant { return w.slot.current.Load() }

// AllocWindow makes a window of pd, which is not bound (IBTA 11.2.8.9). It is
// serialised with Register. The error wraps ErrPD, ErrMWType or ErrExhausted
// (ib.MaxMW).
func (t *Table) AllocWindow(pd *PD, typ ib.MWType) (*Window, error) {
	switch {
	case pd == nil || pd.table != t:
		return nil, ErrPD
	case typ != ib.MWType1 && typ != ib.MWType2:
		return nil, fmt.Errorf("%w: %d", ErrMWType, typ)
	case t.windows.count >= ib.MaxMW:
		return nil, fmt.Errorf("%w: there are %d windows", ErrExhausted, ib.MaxMW)
	}
	t.windows.keys.reserve(1)
	key, ok := t.drawIndex(0)
	if !ok {
		return nil, errRandom()
	}
	w := &Window{pd: pd, typ: typ, step: uint8(t.random()) | 1}
	w.slot.window = w
	w.slot.current.Store(newDead(key))
	t.windows.keys.insert(indexOf(key), &w.slot.head)
	t.windows.count++
	pd.windows++
	return w, nil
}

// FreeWindow frees a window, bound or not (IBTA 11.2.8.12). It waits as Revoke
// does. None of the window's keys is given out again soon. A window that was
// freed, or is not of t, is left alone. FreeWindow is serialised with Register.
func (t *Table) FreeWindow(w *Window) {
	if w == nil || w.pd.table != t {
		return
	}
	old := w.slot.current.Swap(noGrant)
	if old == noGrant {
		return
	}
	t.windows.keys.kill(indexOf(old.key))
	t.windows.count--
	w.pd.windows--
	old.endWindow()
	t.windows.keys.trim()
}

// endWindow ends what a window stands for. Only the first call does: then no
// view of it is in use any more, and the region has one window less.
func (g *Grant) endWindow() ib.Fault {
	if !g.kill() {
		return ib.FaultUnknownKey
	}
	g.drain()
	g.region.bound.drop()
	return ib.FaultNone
}

// Bind binds a window for queue pair qpn of pd (IBTA 10.6.7.2.2). It may be
// called at the same time as everything else. What the window stood for before
// ends at once, and Bind waits for its views as Revoke does: the caller holds
// none. Nothing changes on a fault:
//
//   - ib.FaultUnknownKey: b.Window is not the key of a window now, or b.Region
//     not the lkey of a region, or b.NewKey has not the index of the window.
//   - ib.FaultWrongPD: pd, the domain of the window and that of the region are
//     not the same (IBTA C10-72).
//   - ib.FaultState: a window of type 2 is bound already.
//   - ib.FaultNoAccess: rights that a window cannot give, or that need rights
//     of the region: MWBind (C10-73), and LocalWrite for RemoteWrite and
//     RemoteAtomic (C10-74). A window of type 1 is not zero-based.
//   - ib.FaultOutOfBounds: the range is not inside the region (C10-75), or has
//     0 bytes in a window of type 2 (o10-37.2.40). One of type 1 stands for
//     nothing then, and the region is not looked at.
func (t *Table) Bind(pd *PD, qpn rocev2.QPN, b *ib.BindMW) ib.Fault {
	s := t.slotOf(b.Window)
	if s == nil || s.window == nil {
		return ib.FaultUnknownKey
	}
	w, old := s.window, s.current.Load()
	if old.key != b.Window {
		return ib.FaultUnknownKey
	}
	if w.pd != pd {
		return ib.FaultWrongPD
	}
	if w.typ == ib.MWType2 && old.Alive() {
		return ib.FaultState
	}
	key, kind := b.NewKey, kindWindow2
	if w.typ == ib.MWType1 {
		kind, qpn = kindWindow1, 0
		if indexOf(key) != indexOf(old.key) || key == old.key {
			key = old.key&^(keyVariants-1) | ib.Key(uint8(old.key)+w.step)
		}
	}
	if indexOf(key) != indexOf(old.key) {
		return ib.FaultUnknownKey
	}
	next := newDead(key)
	if b.Length != 0 || w.typ == ib.MWType2 {
		var f ib.Fault
		if next, f = t.bound(w, b); f != ib.FaultNone {
			return f
		}
		next.key, next.qpn, next.kind = key, qpn, kind
	}
	if !s.current.CompareAndSwap(old, next) { // another call binds or frees it
		next.endWindow()
		return ib.FaultUnknownKey
	}
	old.endWindow()
	return ib.FaultNone
}

// bound returns what w is to stand for. The region counts it.
func (t *Table) bound(w *Window, b *ib.BindMW) (*Grant, ib.Fault) {
	l := t.lookup(b.Region)
	if l == nil || l.key != b.Region || !l.local() || !l.Alive() {
		return nil, ib.FaultUnknownKey
	}
	r := l.region
	if r.pd != w.pd {
		return nil, ib.FaultWrongPD
	}
	o := GrantOptions{Offset: b.Addr - r.base, Length: b.Length, Access: b.Access}
	if b.Access&ib.ZeroBased != 0 && w.typ == ib.MWType1 {
		return nil, ib.FaultNoAccess
	}
	if f := o.fault(r); f != ib.FaultNone {
		return nil, f
	}
	if !r.bound.add() {
		return nil, ib.FaultUnknownKey // deregistered meanwhile
	}
	return &Grant{region: r, off: o.Offset, length: o.Length, rights: rightsOf(o.Access)}, ib.FaultNone
}

// fault says what is wrong with a window on a region. An address below it has
// an offset, modulo 2^64, beyond every length.
func (o GrantOptions) fault(r *Region) ib.Fault {
	if o.Access&^(grantRights|ib.AccessHints) != 0 || r.lacks(o.Access) != 0 {
		return ib.FaultNoAccess
	}
	if o.Length == 0 || !inside(o.Offset, o.Length, r.Len()) {
		return ib.FaultOutOfBounds
	}
	return ib.FaultNone
}
