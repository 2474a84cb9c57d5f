//go:build !windows

package udp

import "syscall"

// What the system calls its errors.
const (
	portUnreachable = syscall.ECONNREFUSED
	addrInUse       = syscall.EADDRINUSE
	notSocket       = syscall.ENOTSOCK
)
