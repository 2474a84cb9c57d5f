package abi

import (
	"encoding/binary"
	"net/netip"
)

const (
	inLen      = 16  // sockaddr_in
	in6Len     = 28  // sockaddr_in6
	ibLen      = 48  // sockaddr_ib
	storageLen = 128 // __kernel_sockaddr_storage
)

// SockAddr is an address as programs have it.
type SockAddr struct {
	Family uint16
	Addr   netip.AddrPort // of IPv4 and IPv6
	Scope  uint32         // of IPv6: the index of the interface
	Bad    bool           // the size is not that of the family
}

// sockAddr decodes an address. size is what the program says, -1 if it does not
// say.
func sockAddr(b []byte, size int) SockAddr {
	s := SockAddr{Family: le.Uint16(b)}
	want := 0
	switch s.Family {
	case AFInet:
		want = inLen
		s.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
	case AFInet6:
		want = in6Len
		s.Addr = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:]))
		s.Scope = le.Uint32(b[24:])
	case AFIB:
		want = ibLen
	}
	if size >= 0 {
		s.Bad = size != want
	} else {
		s.Bad = want == 0 || want > len(b)
	}
	return s
}

// Len returns the size of the address, 0 if there is none.
func (s SockAddr) Len() int {
	switch s.Family {
	case AFInet:
		return inLen
	case AFInet6:
		return in6Len
	}
	return 0
}

// Of returns an IP address and a port as a program has it. The zero address has
// no family.
func Of(a netip.AddrPort, scope uint32) SockAddr {
	switch {
	case !a.Addr().IsValid():
		return SockAddr{}
	case a.Addr().Is4():
		return SockAddr{Family: AFInet, Addr: a}
	}
	return SockAddr{Family: AFInet6, Addr: a, Scope: scope}
}

// put writes the address into b, whose other bytes are 0.
func (s SockAddr) put(b []byte) {
	le.PutUint16(b, s.Family)
	switch s.Family {
	case AFInet:
		binary.BigEndian.PutUint16(b[2:], s.Addr.Port())
		a := s.Addr.Addr().As4()
		copy(b[4:], a[:])
	case AFInet6:
		binary.BigEndian.PutUint16(b[2:], s.Addr.Port())
		a := s.Addr.Addr().As16()
		copy(b[8:], a[:])
		le.PutUint32(b[24:], s.Scope)
	}
}
