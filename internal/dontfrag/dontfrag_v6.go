//go:build openbsd || netbsd

package dontfrag

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrTooLong is the system's word for a packet longer than the MTU.
const ErrTooLong = unix.EMSGSIZE

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
