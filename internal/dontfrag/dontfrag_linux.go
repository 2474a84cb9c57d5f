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

// The packets have Identification 0. What ICMP says of the path does not count.
func set(c syscall.RawConn, v4 bool) error {
	level, option, probe := unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	if v4 {
		level, option, probe = unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, probe) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}
