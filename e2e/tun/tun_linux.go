// Package tun makes network devices whose cable is a file descriptor.
package tun

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind says what passes the descriptor, one with each read and write.
type Kind uint16

const (
	Packets Kind = unix.IFF_TUN // IP packets
	Frames  Kind = unix.IFF_TAP // frames of Ethernet
)

// Open makes a device in the network namespace of the calling thread. It goes
// when the descriptor, which does not block, is closed. It needs CAP_NET_ADMIN.
func Open(name string, kind Kind) (fd int, err error) {
	if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("/dev/net/tun: %w", err)
	}
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], name)
	req.flags = uint16(kind) | unix.IFF_NO_PI
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); e != 0 {
		unix.Close(fd)
		return -1, fmt.Errorf("a device %s on /dev/net/tun: %w", name, e)
	}
	return fd, nil
}
