//go:build !portable

package udp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// interfaceMTU asks the system for the MTU of the interface with an index, by
// two ioctls on a socket. To ask by netlink, as package net does,
// returns all interfaces and takes fifty times as long, and each queue pair
// that is connected asks.
func interfaceMTU(socket syscall.RawConn, index int) (mtu int, ok bool) {
	ok = askInterface(socket, index, unix.SIOCGIFMTU, func(r *unix.Ifreq) { mtu = int(r.Uint32()) })
	return mtu, ok
}

// interfaceFlags asks alike for IFF_UP and the like.
func interfaceFlags(socket syscall.RawConn, index int) (flags uint16, ok bool) {
	ok = askInterface(socket, index, unix.SIOCGIFFLAGS, func(r *unix.Ifreq) { flags = r.Uint16() })
	return flags, ok
}

func askInterface(socket syscall.RawConn, index int, request uint, answer func(*unix.Ifreq)) (ok bool) {
	err := socket.Control(func(fd uintptr) {
		r, err := unix.NewIfreq("")
		if err != nil {
			return
		}
		r.SetUint32(uint32(index))
		if unix.IoctlIfreq(int(fd), unix.SIOCGIFNAME, r) != nil || unix.IoctlIfreq(int(fd), request, r) != nil {
			return
		}
		answer(r)
		ok = true
	})
	return ok && err == nil
}
