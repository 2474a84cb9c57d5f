//go:build openbsd || netbsd

package dontfrag

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrTooLong is the system's word for a packet longer than the MTU.
const ErrTooLong = unix.EMSGSIZE

// ZeroID reports whether what the socket sends over IPv4 has Identification 0.
const ZeroID = false

// These systems have the option for IPv6 alone.
func set(c syscall.RawConn, v4 bool) error {
	if v4 {
		return nil
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}
