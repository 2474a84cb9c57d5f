package dontfrag

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// ErrTooLong is the system's word for a packet longer than the MTU.
const ErrTooLong = windows.WSAEMSGSIZE

// ZeroID reports whether what the socket sends over IPv4 has Identification 0.
const ZeroID = false

// ws2ipdef.h
const (
	ipDontFragment   = 14 // IP_DONTFRAGMENT
	ipv6DontFragment = 14 // IPV6_DONTFRAG
)

// Windows gives the packets an Identification of its choosing all the same.
func set(c syscall.RawConn, v4 bool) error {
	level, option := windows.IPPROTO_IPV6, ipv6DontFragment
	if v4 {
		level, option = windows.IPPROTO_IP, ipDontFragment
	}
	var err error
	if e := c.Control(func(fd uintptr) { err = windows.SetsockoptInt(windows.Handle(fd), level, option, 1) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}
