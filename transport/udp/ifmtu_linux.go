//go:build !portable

package udp

import "golang.org/x/sys/unix"

// interfaceMTU asks the system for the MTU of the interface with an index, by
// two ioctls on the link's socket. To ask by netlink, as package net does,
// returns all interfaces and takes fifty times as long, and each queue pair
// that is connected asks.
func (l *Link) interfaceMTU(index int) (mtu int, ok bool) {
	err := l.raw.Control(func(fd uintptr) {
		r, err := unix.NewIfreq("")
		if err != nil {
			return
		}
		r.SetUint32(uint32(index))
		if unix.IoctlIfreq(int(fd), unix.SIOCGIFNAME, r) != nil || unix.IoctlIfreq(int(fd), unix.SIOCGIFMTU, r) != nil {
			return
		}
		mtu, ok = int(r.Uint32()), true
	})
	return mtu, ok && err == nil
}
