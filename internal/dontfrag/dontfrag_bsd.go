//go:build darwin || freebsd

package dontfrag

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrTooLong is the system's word for a packet longer than the MTU.
const ErrTooLong = unix.EMSGSIZE

// ZeroID reports whether what the socket sends over IPv4 has Identification 0.
const ZeroID = true

// These systems give unfragmented packets Identification 0 (RFC 6864).
func set(c syscall.RawConn, v4 bool) error {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG
	if v4 {
		level, option = unix.IPPROTO_IP, unix.IP_DONTFRAG
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}
