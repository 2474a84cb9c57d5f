package verbs

import (
	"fmt"
	"math"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// ImplicitMR is an implicit on-demand region: one pair of keys for all memory
// that the program allows, now and later, at its real address. Memory that is
// not on the list cannot be reached. [PD.RegisterImplicit] makes one. Its
// methods may be called from any goroutine.
type ImplicitMR struct{ core *hca.ImplicitMR }

// RegisterImplicit registers the whole address space, of which nothing is
// allowed at first: Allow and AllowMR add to the list. The rights are for all
// of it. The error wraps ErrClosed or ErrNoResources, or says which right is
// not possible; FlushPersistent is not.
//
// A request, of this side or the peer, must stay inside one entry of the list:
// what lies next to each other is not joined.
func (pd *PD) RegisterImplicit(access Access) (*ImplicitMR, error) {
	core, err := pd.core.RegisterImplicit(memreg.Options{Access: access | OnDemand})
	if err != nil {
		return nil, fmt.Errorf("verbs: register memory implicitly: %w", err)
	}
	return &ImplicitMR{core: core}, nil
}

// Allow puts Go memory on the list. buf stays in place and alive until Forbid
// or Close. The error says that some of it is on the list already, that there
// is none, or wraps ErrClosed.
func (m *ImplicitMR) Allow(buf []byte) error {
	err := m.core.Allow(memreg.AddrOf(buf), memreg.Local(buf))
	return implicitError("allow", err)
}

// AllowMR puts the memory of a region on the list, at the wire addresses of the
// region. Its rights do not matter here, only whether it is mapped for reading
// only. The memory stays until Forbid or Close, even if the region is closed.
func (m *ImplicitMR) AllowMR(mr *MR) error {
	return implicitError("allow", m.core.AllowRegion(mr.core))
}

// Forbid takes Go memory off the list. When it returns, no transfer touches it
// through the region any more. The error says that it is not on the list.
func (m *ImplicitMR) Forbid(buf []byte) error {
	return implicitError("forbid", m.core.Forbid(memreg.AddrOf(buf)))
}

// ForbidMR takes the memory of a region off the list, as Forbid. A region that
// was registered anew since must be forbidden before.
func (m *ImplicitMR) ForbidMR(mr *MR) error { return implicitError("forbid", m.core.Forbid(mr.Addr())) }

func implicitError(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("verbs: %s memory in an implicit region: %w", doing, err)
	}
	return nil
}

// LKey returns the key for the owner's own work requests.
func (m *ImplicitMR) LKey() Key { return m.core.Region().LKey() }

// RKey returns the key for the peer.
func (m *ImplicitMR) RKey() Key { return m.core.Region().RKey() }

// Access returns the rights that the region was registered with.
func (m *ImplicitMR) Access() Access { return m.core.Region().Access() }

// SGE returns a scatter/gather entry for memory that is on the list, or a part
// of it. If it is not, the request fails with StatusLocProtErr.
func (m *ImplicitMR) SGE(buf []byte) SGE {
	if len(buf) == 0 {
		return SGE{}
	}
	if uint64(len(buf)) > math.MaxUint32 {
		return SGE(ib.InvalidSGE(ib.BadSize))
	}
	return SGE{Addr: memreg.AddrOf(buf), Length: uint32(len(buf)), LKey: m.LKey()}
}

// Remote returns what a peer must know to reach memory that is on the list.
func (m *ImplicitMR) Remote(buf []byte) RemoteMemory {
	return RemoteMemory{Addr: memreg.AddrOf(buf), Length: uint64(len(buf)), RKey: m.RKey()}
}

// Close deregisters the region and empties its list. When it returns, no
// transfer touches the memory through the region any more.
func (m *ImplicitMR) Close() error { return m.core.Close() }

// Prefetch brings n bytes at off of the region into memory, for reading or
// writing, and waits for them (as ibv_advise_mr does). So the first transfers
// need not wait for a disk. It does something for MapFile only. The error wraps
// ErrRange or ErrClosed.
func (mr *MR) Prefetch(off, n int, write bool) error {
	if off < 0 || n < 0 || off > mr.Len() || n > mr.Len()-off {
		return fmt.Errorf("verbs: prefetch %d bytes at offset %d of %d: %w", n, off, mr.Len(), ErrRange)
	}
	if err := mr.core.Prefetch(uint64(off), uint64(n), write); err != nil {
		return fmt.Errorf("verbs: prefetch memory: %w", err)
	}
	return nil
}
