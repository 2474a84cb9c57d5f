package ib

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// AddressHandle says where the datagrams of a UD queue pair go: to a host, or
// to a group (IBTA 11.2.2). PD.CreateAH of package verbs makes one. Many queue
// pairs of the domain may use it, for as many destination queue pairs. Its
// methods may be called from any goroutine: a request takes the vector that is
// there when it is posted.
type AddressHandle struct {
	// Domain is the protection domain of the handle. A queue pair takes
	// handles of its own domain only.
	Domain any

	// Keeper is what Modify and Close ask.
	Keeper AddressHandleKeeper

	av atomic.Pointer[AddressVector]
}

// AddressHandleKeeper is the adapter that an address handle is of.
type AddressHandleKeeper interface {
	// Modify checks av and gives it to the handle by SetVector.
	Modify(av AddressVector) error
	// Close destroys the handle.
	Close() error
}

// Vector returns the current vector, which must not be changed; nil if the
// handle was destroyed.
func (h *AddressHandle) Vector() *AddressVector { return h.av.Load() }

// SetVector replaces the vector by one that does not change any more; nil
// destroys the handle.
func (h *AddressHandle) SetVector(av *AddressVector) { h.av.Store(av) }

// Query returns the address vector: SrcPort is the port in use. Of a handle
// that is closed it is zero.
func (h *AddressHandle) Query() AddressVector {
	if av := h.Vector(); av != nil {
		return *av
	}
	return AddressVector{}
}

// Modify has what is posted from now on go to av. The error is as that of
// PD.CreateAH.
func (h *AddressHandle) Modify(av AddressVector) error {
	if h.Keeper == nil {
		return fmt.Errorf("verbs: modify an address handle: %w", errNoKeeper)
	}
	if err := h.Keeper.Modify(av); err != nil {
		return fmt.Errorf("verbs: modify an address handle: %w", err)
	}
	return nil
}

// Close destroys the handle. What was posted with it is sent all the same.
func (h *AddressHandle) Close() error {
	if h.Keeper == nil {
		return fmt.Errorf("verbs: close an address handle: %w", errNoKeeper)
	}
	return h.Keeper.Close()
}

// errNoKeeper is of a handle that a program has made by itself.
var errNoKeeper = errors.New("no protection domain has made it: use PD.CreateAH")
