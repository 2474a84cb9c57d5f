//go:build !windows

package udp

import "syscall"

// What the system calls its errors.
const (
	portUnreachable = syscall.ECONNREFUSED
	addrInUse       = syscall.EADDRINUSE
	notSocket       = syscall.ENOTSOCK
	addrNotLocal    = syscall.EADDRNOTAVAIL
	noPermission    = syscall.EACCES
	manyFiles       = syscall.EMFILE
	noRoom          = syscall.ENOBUFS
)
