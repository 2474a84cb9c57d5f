package verbs

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// Reregistration says what [MR.Reregister] changes, as the flags of
// ibv_rereg_mr do.
type Reregistration func(*reregistration)

type reregistration struct {
	core   hca.Reregistration
	change []func(*memreg.Options)
	data   []byte // if core.Memory is set
}

// ToPD moves the region to another protection domain of the device
// (IBV_REREG_MR_CHANGE_PD).
func ToPD(pd *PD) Reregistration {
	return func(r *reregistration) { r.core.PD = pd.core }
}

// ToAccess gives the region other rights (IBV_REREG_MR_CHANGE_ACCESS).
func ToAccess(access Access) Reregistration {
	return func(r *reregistration) {
		r.change = append(r.change, func(o *memreg.Options) { o.Access = access | o.Access&ib.ZeroBased })
	}
}

// ToMemory has the region stand for other Go memory
// (IBV_REREG_MR_CHANGE_TRANSLATION), at its real address or where an option
// says. What the region stood for is given back.
func ToMemory(buf []byte, opts ...RegOption) Reregistration {
	return func(r *reregistration) {
		r.core.Memory, r.data = memreg.Local(buf), buf
		r.change = append(r.change, func(o *memreg.Options) {
			*o = memreg.Options{Access: o.Access &^ ib.ZeroBased, Invalidatable: o.Invalidatable}
			applyOptions(o, opts)
		})
	}
}

var errNothingToChange = errors.New("nothing to change: give ToPD, ToAccess or ToMemory")

// Reregister changes a region without closing it (IBTA 11.2.8.5). It has new
// keys afterwards, and the old ones are dead: nothing that was posted with them
// and is not complete goes on. The wire address stays, unless ToMemory changes
// it.
//
// On an error the region is as it was. The error wraps ErrClosed; ErrInUse,
// because a memory window is bound to the region; or ErrOtherDevice; or says
// what is wrong.
func (mr *MR) Reregister(changes ...Reregistration) error {
	var r reregistration
	for _, f := range changes {
		f(&r)
	}
	err := errNothingToChange
	if len(changes) > 0 {
		r.core.Options = func(o *memreg.Options) {
			for _, f := range r.change {
				f(o)
			}
		}
		if r.core.Memory != nil {
			r.core.Done = func() { mr.data.Store(&r.data) }
		}
		err = mr.core.Reregister(r.core)
	}
	if err != nil {
		return fmt.Errorf("verbs: reregister memory: %w", err)
	}
	return nil
}

// Share registers the memory of the region once more, in pd, with rights and
// keys of its own (IBTA 11.2.8.6). Without an option it has the wire address of
// mr. The domain may be of another device. The memory stays until both regions
// are closed, in any order. The error
// is as that of RegisterMemory.
func (mr *MR) Share(pd *PD, access Access, opts ...RegOption) (*MR, error) {
	o := mr.region().Options()
	o.Access, o.Invalidatable = access|o.Access&ib.ZeroBased, false
	applyOptions(&o, opts)
	core, err := mr.core.Share(pd.core, o)
	if err != nil {
		return nil, fmt.Errorf("verbs: share memory: %w", err)
	}
	return newMR(core, mr.Bytes()), nil
}

// MRAttr describes a region, as Query Memory Region does (IBTA 11.2.8.3).
type MRAttr struct {
	LKey    Key    // for requests of this side
	RKey    Key    // for the peer
	Addr    uint64 // wire address of the first byte
	Length  uint64 // bytes
	Access  Access // its rights
	Windows int    // memory windows that are bound to it
	Valid   bool   // it is not closed
}

// Query returns what the region is now.
func (mr *MR) Query() MRAttr {
	r := mr.region()
	return MRAttr{LKey: r.LKey(), RKey: r.RKey(), Addr: r.Addr(), Length: r.Len(), Access: r.Access(), Windows: r.Bound(), Valid: r.Alive()}
}
