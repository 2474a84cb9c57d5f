package udp

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// What the system calls its errors.
const (
	portUnreachable = syscall.WSAECONNRESET
	addrInUse       = windows.WSAEADDRINUSE
	notSocket       = windows.WSAENOTSOCK
	addrNotLocal    = windows.WSAEADDRNOTAVAIL
	noPermission    = windows.WSAEACCES
	manyFiles       = windows.WSAEMFILE
	noRoom          = windows.WSAENOBUFS
)
