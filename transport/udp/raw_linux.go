//go:build !portable

package udp

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dataSpace is what an int or anything shorter takes in a control message: the
// word size, to which header and data are padded.
const dataSpace = unix.SizeofPtr

func putControl(b []byte, level, typ, size int) int {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = int32(level), int32(typ)
	h.SetLen(unix.CmsgLen(size))
	return controlInt
}

// controlValue is one received control message with an integer.
type controlValue struct {
	level, typ int32
	value      int
}

// nextControl parses the first control message of b, of which only those with
// data of 1, 2 or at least 4 bytes have a value.
func nextControl(b []byte) (v controlValue, rest []byte, ok bool) {
	if len(b) < unix.SizeofCmsghdr {
		return v, nil, false
	}
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	n := int(h.Len)
	if n < unix.CmsgLen(0) || n > len(b) {
		return v, nil, false
	}
	v.level, v.typ = h.Level, h.Type
	switch data := b[unix.CmsgLen(0):n]; {
	case len(data) >= 4:
		v.value = int(int32(binary.NativeEndian.Uint32(data)))
	case len(data) >= 2:
		v.value = int(binary.NativeEndian.Uint16(data))
	case len(data) == 1:
		v.value = int(data[0])
	}
	space := unix.CmsgSpace(n - unix.CmsgLen(0))
	return v, b[min(space, len(b)):], true
}

// putSockaddr writes an address in the kernel's form and returns its length.
func putSockaddr(sa *unix.RawSockaddrInet6, ap netip.AddrPort, scope, label uint32) uint32 {
	if ap.Addr().Is4() {
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		sa4.Family = unix.AF_INET
		sa4.Addr = ap.Addr().As4()
		putPort(&sa4.Port, ap.Port())
		return unix.SizeofSockaddrInet4
	}
	sa.Family = unix.AF_INET6
	sa.Addr = ap.Addr().As16()
	putPort(&sa.Port, ap.Port())
	sa.Flowinfo = bigEndian32(label & 0xfffff)
	if ap.Addr().IsLinkLocalUnicast() || ap.Addr().IsLinkLocalMulticast() {
		sa.Scope_id = scope
	}
	return unix.SizeofSockaddrInet6
}

// getSockaddr reads an address in the kernel's form, without its scope.
func getSockaddr(sa *unix.RawSockaddrInet6, n uint32) (netip.Addr, uint16) {
	switch {
	case sa.Family == unix.AF_INET && n >= unix.SizeofSockaddrInet4:
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrFrom4(sa4.Addr), getPort(&sa4.Port)
	case sa.Family == unix.AF_INET6 && n >= unix.SizeofSockaddrInet6:
		return netip.AddrFrom16(sa.Addr).Unmap(), getPort(&sa.Port)
	}
	return netip.Addr{}, 0
}

func putPort(p *uint16, port uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], port)
}

func getPort(p *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:])
}

func bigEndian32(v uint32) (w uint32) {
	binary.BigEndian.PutUint32((*[4]byte)(unsafe.Pointer(&w))[:], v)
	return w
}

// Options of linux/in6.h that package unix lacks.
const (
	ipv6Flowinfo     = 11 // IPV6_FLOWINFO: the flow label of what arrives is told
	ipv6FlowinfoSend = 33 // IPV6_FLOWINFO_SEND: sin6_flowinfo counts
)
