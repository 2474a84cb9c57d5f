package ib

import "sync/atomic"

// AddressHandle says where a datagram goes (IBTA 11.2.2). Its vector can be
// changed while requests are being posted: a request takes the one that is
// there when it is posted.
type AddressHandle struct {
	// Domain is the protection domain of the handle. A queue pair takes
	// handles of its own domain only.
	Domain any

	av atomic.Pointer[AddressVector]
}

// Vector returns the current vector, which must not be changed; nil if the
// handle was destroyed.
func (h *AddressHandle) Vector() *AddressVector { return h.av.Load() }

// SetVector replaces the vector by one that does not change any more; nil
// destroys the handle.
func (h *AddressHandle) SetVector(av *AddressVector) { h.av.Store(av) }
