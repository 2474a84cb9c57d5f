package mad

import (
	"errors"
	"net/netip"
)

// IPHeaderLen is the size of an IPHeader in bytes.
const IPHeaderLen = 36

// Why private data does not begin with the IP header of RDMA-CM.
var (
	ErrIPHeaderLength  = errors.New("mad: private data too short for the IP header of RDMA-CM, 36 bytes")
	ErrIPHeaderVersion = errors.New("mad: the version of the RDMA-CM header in the private data is not 0")
	ErrIPVersion       = errors.New("mad: the IP version of the RDMA-CM header in the private data is neither 4 nor 6")
)

// IPHeader is what RDMA-CM puts in front of the private data of a REQ or
// SIDR_REQ (IBTA A11.4): 36 bytes. The destination port is in the service ID.
//
//	0: version   1: IP version (7-4)   2-3: source port
//	4-19: source address   20-35: destination address
//
// An IPv4 address has 12 zero bytes before it.
type IPHeader struct {
	SourcePort          uint16
	Source, Destination netip.Addr // both IPv4, or both IPv6
}

// AppendTo appends the encoded header to b. The destination decides which IP
// version it is.
func (h *IPHeader) AppendTo(b []byte) []byte {
	source, destination := h.Source.Unmap(), h.Destination.Unmap()
	version := byte(0x60)
	if destination.Is4() {
		version = 0x40
	}
	b = append(b, 0, version)
	b = be.AppendUint16(b, h.SourcePort)
	for _, a := range [...]netip.Addr{source, destination} {
		w := a.As16()
		if version == 0x40 {
			clear(w[:12])
		}
		b = append(b, w[:]...)
	}
	return b
}

// Parse decodes the header at the start of private data, and returns the
// program's data after it.
func (h *IPHeader) Parse(private []byte) (data []byte, err error) {
	if len(private) < IPHeaderLen {
		return nil, ErrIPHeaderLength
	}
	if private[0] != 0 {
		return nil, ErrIPHeaderVersion
	}
	h.SourcePort = be.Uint16(private[2:])
	switch private[1] >> 4 {
	case 4:
		h.Source = netip.AddrFrom4([4]byte(private[16:]))
		h.Destination = netip.AddrFrom4([4]byte(private[32:]))
	case 6:
		h.Source = netip.AddrFrom16([16]byte(private[4:]))
		h.Destination = netip.AddrFrom16([16]byte(private[20:]))
	default:
		return nil, ErrIPVersion
	}
	return private[IPHeaderLen:], nil
}
