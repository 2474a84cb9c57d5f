package memreg

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// MaxGrants is how many grants one table holds besides the two of each region.
const MaxGrants = 1 << 24

// Errors of Grant and Deregister. They come wrapped with the details.
var (
	ErrRegion = errors.New("memreg: not a region of this table") // or not any more
	ErrQPN    = errors.New("memreg: not a queue pair number")    // more than 24 bits

	// ErrRegionInUse: the region has other grants, such as those of
	// windows. Revoke them first. errors.Is finds ib.ErrInUse, too.
	ErrRegionInUse = fmt.Errorf("memreg: region %w", ib.ErrInUse)
)

// inUse says how many grants keep the region as it is.
func (r *Region) inUse() error {
	return fmt.Errorf("%w: memory windows or other grants on it: %d; unbind or close them first", ErrRegionInUse, r.Bound())
}

// dead is set in a grant's pin count when its key dies. So one atomic add both
// takes a pin and tells whether the key was alive.
const dead int32 = 1 << 30

// Grant is what a key stands for: which part of a region may be accessed, how,
// and by which queue pairs. Every region has two of its own, for its lkey and
// its rkey. [Table.Grant] makes more, such as those of memory windows.
//
// All but the pin count is constant. The protection domain is the region's: a
// window, its region and its queue pair have the same one (IBTA C10-72).
type Grant struct {
	region *Region
	off    uint64 // of the first byte, in the region
	length uint64
	key    ib.Key
	qpn    rocev2.QPN   // 0: every queue pair
	pins   atomic.Int32 // views in use, plus dead
	rights uint16       // the bits of ib.Access that are checked
	kind   grantKind
}

// grantKind says what a grant is of, and so what may end it.
type grantKind uint8

const (
	kindPlain         grantKind = iota // a region's own, or of Table.Grant
	kindInvalidatable                  // the same, and its rkey may be invalidated
	kindWindow1                        // of a window of type 1
	kindWindow2                        // of a window of type 2
	kindFast                           // of a fast registration region
)

func kindOf(invalidatable bool) grantKind {
	if invalidatable {
		return kindInvalidatable
	}
	return kindPlain
}

// Key is the rkey of the grant.
func (g *Grant) Key() ib.Key { return g.key }

// Region is the region that the grant is on.
func (g *Grant) Region() *Region { return g.region }

// Addr is the address of the grant's first byte on the wire: its address in the
// region, or 0 if the grant is zero-based.
func (g *Grant) Addr() uint64 {
	if ib.Access(g.rights)&ib.ZeroBased != 0 {
		return 0
	}
	return g.region.base + g.off
}

// Len is the length of the grant in bytes.
func (g *Grant) Len() uint64 { return g.length }

// Access is the set of granted rights, without the hints that have no effect.
func (g *Grant) Access() ib.Access { return ib.Access(g.rights) }

// QPN is the queue pair that the grant is bound to, 0 if it is for every queue
// pair of the protection domain.
func (g *Grant) QPN() rocev2.QPN { return g.qpn }

// Alive reports whether the key can be used: it was not revoked, invalidated or
// deregistered.
func (g *Grant) Alive() bool { return g.pins.Load() < dead }

// local reports whether the grant is for the lkey of its region.
func (g *Grant) local() bool { return g == &g.region.local }

// acquire pins the grant, and so its region. It reports false, without a pin,
// once the key is dead. A holder of a pin must not block.
func (g *Grant) acquire() bool {
	if g.pins.Add(1) >= dead {
		g.pins.Add(-1)
		return false
	}
	return true
}

// release drops a pin of acquire.
func (g *Grant) release() {
	if g.pins.Add(-1) < 0 {
		panic("memreg: Release without a pin")
	}
}

// kill makes acquire fail from now on. It reports whether the key was alive.
func (g *Grant) kill() bool { return g.pins.Or(dead)&dead == 0 }

// drain returns when no pin of a killed grant is left.
func (g *Grant) drain() {
	// Failed acquires show up here for an instant. Holders do not block, so
	// this ends.
	for g.pins.Load() > dead {
		runtime.Gosched()
	}
}

// bindings counts the grants and windows on a region.
type bindings struct{ n atomic.Int32 } // dead once there can be none

// add counts one more. It reports false once there can be none.
func (b *bindings) add() bool {
	if b.n.Add(1) >= dead {
		b.n.Add(-1)
		return false
	}
	return true
}

// drop takes back what add has counted.
func (b *bindings) drop() { b.n.Add(-1) }

// seal has add fail from now on. It reports false if there are any.
func (b *bindings) seal() bool { return b.n.CompareAndSwap(0, dead) }

// GrantOptions describe a grant on a part of a region.
type GrantOptions struct {
	Offset uint64 // of the first byte, in the region
	Length uint64 // bytes, at least 1

	// Access holds remote rights, and ZeroBased if the first byte has
	// address
	// 0. Hints are accepted. See Table.Grant for what the region must
	// allow.
	Access ib.Access

	// QPN binds the grant to one queue pair: it refuses all others, as a
	// memory window of type 2 does. 0 is for every queue pair of the
	// protection domain, as a window of type 1.
	QPN rocev2.QPN

	// Invalidatable lets Table.Invalidate end the grant. A window of type 2
	// can be invalidated, one of type 1 cannot (IBTA o10-37.2.26).
	Invalidatable bool
}

// Grant gives peers access to a part of a region under a new random key, with
// rights of its own. It refuses, with an error that wraps the sentinel:
//
//   - ErrRegion for a region that is not registered in t.
//   - ErrAccess for rights that are not remote ones, and for a region without
//     MWBind (IBTA C10-73). RemoteWrite and RemoteAtomic need LocalWrite of the
//     region (C10-74). The region's own remote rights do not count: a window
//     may grant what the rkey does not. FLUSH is a property of the memory, and
//     the region must have it.
//   - ErrLength for 0 bytes (o10-37.2.40), ib.ErrRange for a part that is not
//     inside the region (C10-75), ErrQPN for more than 24 bits.
//   - ErrExhausted beyond MaxGrants, or when the random source repeats itself.
//
// The region cannot be deregistered before the grant is revoked. Grant is
// serialised with Register.
func (t *Table) Grant(r *Region, o GrantOptions) (*Grant, error) {
	if r == nil || r.pd.table != t || !r.Alive() {
		return nil, ErrRegion
	}
	if err := r.checkGrant(o); err != nil {
		return nil, err
	}
	if t.grants >= MaxGrants {
		return nil, fmt.Errorf("%w: there are %d grants", ErrExhausted, MaxGrants)
	}
	t.keys.reserve(1)
	key, ok := t.draw(0)
	if !ok {
		return nil, errRandom()
	}
	r.bound.add()
	g := &Grant{region: r, off: o.Offset, length: o.Length, key: key, qpn: o.QPN,
		rights: rightsOf(o.Access), kind: kindOf(o.Invalidatable)}
	t.keys.insert(key, g)
	t.grants++
	return g, nil
}

// grantRights are what a grant on a part of a region may give.
const grantRights = ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.ZeroBased |
	ib.FlushGlobal | ib.FlushPersistent

// lacks returns the rights that the region lacks for a grant of a.
func (r *Region) lacks(a ib.Access) ib.Access {
	need := ib.MWBind | a&(ib.FlushGlobal|ib.FlushPersistent)
	if a&(ib.RemoteWrite|ib.RemoteAtomic) != 0 {
		need |= ib.LocalWrite
	}
	return need &^ r.access
}

// checkGrant checks options against the region.
func (r *Region) checkGrant(o GrantOptions) error {
	if bad := o.Access &^ (grantRights | ib.AccessHints); bad != 0 {
		return fmt.Errorf("%w: a grant cannot give %v", ErrAccess, bad)
	}
	if lack := r.lacks(o.Access); lack != 0 {
		return fmt.Errorf("%w: the region lacks %v", ErrAccess, lack)
	}
	switch {
	case o.Length == 0:
		return fmt.Errorf("%w: 0 bytes", ErrLength)
	case !inside(o.Offset, o.Length, r.Len()):
		return fmt.Errorf("memreg: %w: %d bytes at offset %d of %d", ib.ErrRange, o.Length, o.Offset, r.Len())
	case o.QPN > rocev2.QPNMask:
		return fmt.Errorf("%w: %#x", ErrQPN, uint32(o.QPN))
	}
	return nil
}

// Revoke ends a grant of [Table.Grant], whether or not it was invalidated. Its
// key is dead at once. Then Revoke waits, yielding the processor, until no view
// of the grant is in use. The caller must hold none itself. The key is not
// given out again before thousands of other keys have been killed. A grant that
// was revoked already, or is not of t, is left alone. Revoke is serialised with
// Register.
func (t *Table) Revoke(g *Grant) {
	if g == nil || g.region.owns(g) || t.keys.lookup(g.key) != g {
		return
	}
	t.keys.kill(g.key)
	t.grants--
	g.kill()
	g.drain()
	g.region.bound.drop()
	t.keys.trim()
}

// Invalidate ends an rkey that may be invalidated, as a SEND with invalidate or
// a local invalidate asks (IBTA 9.4.1.1.3 and 10.6.5): remote accesses that are
// checked from now on meet ib.FaultUnknownKey. Of a region or another grant it
// does no more: local use of the region goes on, it stays registered, a grant
// must still be revoked, and a view that another goroutine holds meanwhile is
// not waited for. A window of type 2 is free to be bound again, and a fast
// registration region free to be registered again, its lkey included. For their
// views Invalidate waits, as Revoke does.
//
// It may be called at the same time as everything else. Faults:
// ib.FaultUnknownKey, also the second time; ib.FaultWrongPD;
// ib.FaultNotInvalidatable for what can be ended by its owner only (IBTA
// o10-37.2.26); ib.FaultNoAccess if the key is bound to another queue pair than
// qpn; ib.FaultState for a fast registration region that windows are bound to.
func (t *Table) Invalidate(pd *PD, qpn rocev2.QPN, key ib.Key) ib.Fault {
	g := t.lookup(key)
	switch {
	case g == nil || g.key != key || g.local() || !g.Alive():
		return ib.FaultUnknownKey
	case g.region.pd != pd:
		return ib.FaultWrongPD
	case g.kind == kindPlain || g.kind == kindWindow1:
		return ib.FaultNotInvalidatable
	case g.qpn != 0 && g.qpn != qpn:
		return ib.FaultNoAccess
	case g.kind == kindFast:
		return g.invalidateFast()
	case g.kind == kindWindow2:
		return g.endWindow()
	case !g.kill():
		return ib.FaultUnknownKey
	}
	return ib.FaultNone
}

// rightsOf returns the bits of a that are checked. The hints are above them.
func rightsOf(a ib.Access) uint16 { return uint16(a & ib.AccessMask & math.MaxUint16) }
