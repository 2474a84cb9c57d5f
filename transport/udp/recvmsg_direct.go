//go:build darwin || freebsd || portable

package udp

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// incoming is what recvmsg fills. It is called directly, because
// golang.org/x/sys allocates an address for each datagram.
type incoming struct {
	hdr     unix.Msghdr
	iov     unix.Iovec
	addr    unix.RawSockaddrInet6 // or one of IPv4, which is shorter
	control [controlRoom]byte
	v4      bool
	room    int // of control; none if the system tells nothing

	n   int // bytes received
	err error
}

func (in *incoming) init(v4, told bool) {
	if in.v4 = v4; told {
		in.room = len(in.control)
	}
	in.hdr.Name = (*byte)(unsafe.Pointer(&in.addr))
	in.hdr.Iov = &in.iov
	in.hdr.Iovlen = 1
}

// offer gives it the buffer for the next datagram.
func (in *incoming) offer(b []byte) {
	in.iov.Base = &b[0]
	in.iov.SetLen(len(b))
}

// receive takes a datagram. It cannot block, so the scheduler need not know of
// it.
func (in *incoming) receive(fd int) {
	in.hdr.Namelen = unix.SizeofSockaddrInet6
	if in.room > 0 {
		in.hdr.Control = &in.control[0]
		in.hdr.SetControllen(in.room)
	}
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&in.hdr)), unix.MSG_DONTWAIT)
	in.n, in.err = int(n), nil
	if errno != 0 {
		in.err = errno
	}
}

// told returns the control messages of the datagram.
func (in *incoming) told() []byte {
	if in.room == 0 {
		return nil
	}
	return in.control[:in.hdr.Controllen]
}

// from returns where the datagram has come from.
func (in *incoming) from() (netip.Addr, uint16) {
	if in.v4 {
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(&in.addr))
		return netip.AddrFrom4(a.Addr), networkOrder(a.Port)
	}
	return netip.AddrFrom16(in.addr.Addr).Unmap(), networkOrder(in.addr.Port)
}

// networkOrder returns a number whose bytes in memory are in network order.
func networkOrder(v uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&v))
	return uint16(b[0])<<8 | uint16(b[1])
}
