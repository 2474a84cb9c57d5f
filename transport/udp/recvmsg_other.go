//go:build unix && !linux && !darwin && !freebsd

package udp

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// incoming is what recvmsg fills. This system has no direct system calls, so
// that each datagram costs an allocation.
type incoming struct {
	buf     []byte
	control [controlRoom]byte
	room    []byte // of control; none if the system tells nothing
	addr    unix.Sockaddr

	n, toldLen int
	err        error
}

func (in *incoming) init(_, told bool) {
	if told {
		in.room = in.control[:]
	}
}

// offer gives it the buffer for the next datagram.
func (in *incoming) offer(b []byte) { in.buf = b }

// receive takes a datagram.
func (in *incoming) receive(fd int) {
	in.n, in.toldLen, _, in.addr, in.err = unix.Recvmsg(fd, in.buf, in.room, unix.MSG_DONTWAIT)
}

// told returns the control messages of the datagram.
func (in *incoming) told() []byte { return in.room[:in.toldLen] }

// from returns where the datagram has come from.
func (in *incoming) from() (netip.Addr, uint16) {
	switch a := in.addr.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr), uint16(a.Port)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)
	}
	return netip.Addr{}, 0
}
