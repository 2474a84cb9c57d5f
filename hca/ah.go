package hca

import (
	"fmt"
	"sync"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// AH is an address handle (IBTA 11.2.2): where the datagrams of the queue pairs
// of one protection domain go.
type AH struct {
	handle ib.AddressHandle
	pd     *PD

	mu     sync.Mutex // serialises Modify and Close
	closed bool
}

// MakeAH makes h, which is new, an address handle of the domain. SrcPort of av
// may be AutoSourcePort; Query then returns the port that was chosen.
func (pd *PD) MakeAH(h *AH, av ib.AddressVector) error {
	made, err := pd.owner.dev.own.vector(av)
	if err != nil {
		return err
	}
	if err := pd.owner.reserve(kindAH); err != nil {
		return err
	}
	pd.mu.Lock()
	defer pd.mu.Unlock()
	if pd.closed {
		pd.owner.unreserve(kindAH)
		return ErrClosed
	}
	h.pd, h.handle.Domain, h.handle.Keeper = pd, pd.core, h
	h.handle.SetVector(made)
	pd.handles[h] = struct{}{}
	pd.owner.dev.use.reach(&av)
	return nil
}

// Core returns the handle as queue pairs know it.
func (h *AH) Core() *ib.AddressHandle { return &h.handle }

// Query returns the address vector, and whether the handle is open.
func (h *AH) Query() (ib.AddressVector, bool) {
	if av := h.handle.Vector(); av != nil {
		return *av, true
	}
	return ib.AddressVector{}, false
}

// Modify replaces the address vector (IBTA 11.2.2.2). Requests that were posted
// before go where it said before.
func (h *AH) Modify(av ib.AddressVector) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	made, err := h.pd.owner.dev.own.vector(av)
	if err == nil {
		h.handle.SetVector(made)
	}
	return err
}

// Close destroys the handle (IBTA 11.2.2.4). Requests that were posted with it
// are sent.
func (h *AH) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.pd == nil {
		return nil
	}
	h.closed = true
	h.handle.SetVector(nil)
	h.pd.mu.Lock()
	delete(h.pd.handles, h)
	h.pd.mu.Unlock()
	h.pd.owner.unreserve(kindAH)
	return nil
}

// Limits of an address vector.
const (
	maxSL        = 15
	maxFlowLabel = 1<<20 - 1
)

// vector checks an address vector of an address handle, opens the source port
// that it asks for, and returns it as the engine takes it.
func (o ownAddr) vector(av ib.AddressVector) (*ib.AddressVector, error) {
	if err := o.checkDestination(av.DGID); err != nil {
		return nil, err
	}
	port, auto := av.SrcPort, av.SrcPort == AutoSourcePort
	switch {
	case av.SL > maxSL:
		return nil, fmt.Errorf("SL is %d; it must be between 0 and %d", av.SL, maxSL)
	case av.FlowLabel > maxFlowLabel:
		return nil, fmt.Errorf("FlowLabel is %#x; it has at most 20 bits", av.FlowLabel)
	case av.SGIDIndex != 0:
		return nil, fmt.Errorf("SGIDIndex is %d; the table has one entry, index 0", av.SGIDIndex)
	case port != 0 && !auto && port < ib.MinSrcPort:
		return nil, fmt.Errorf("SrcPort is %d; it must be 0, AutoSourcePort, or between %d and 65535", port, ib.MinSrcPort)
	}
	if auto {
		port = destinationPort(&av)
	}
	if port != 0 {
		var err error
		if port, err = transport.OpenSourcePort(o.link, port, !auto); err != nil {
			return nil, err
		}
	}
	av.SrcPort = port
	av.DGID = o.zoned(av.DGID)
	return &av, nil
}

// destinationPort returns the source port of datagrams to one destination: of
// the flow label, or of the address.
func destinationPort(av *ib.AddressVector) uint16 {
	label := av.FlowLabel
	if label == 0 {
		for _, b := range av.DGID.As16() {
			label = label*0x01000193 ^ uint32(b)
		}
		label ^= label >> 20
	}
	return flowPort(label, 1, 1)
}
