//go:build !linux && !darwin && !freebsd && !openbsd && !netbsd && !windows

package dontfrag

import "syscall"

// ErrTooLong is the system's word for a packet longer than the MTU.
const ErrTooLong = syscall.EMSGSIZE

// ZeroID reports whether what the socket sends over IPv4 has Identification 0.
const ZeroID = false

func set(syscall.RawConn, bool) error { return nil }
