//go:build !linux && !darwin && !freebsd && !openbsd && !netbsd && !windows

package dontfrag

import "syscall"

// ErrTooLong is the system's word for a packet longer than the MTU.
const ErrTooLong = syscall.EMSGSIZE

func set(syscall.RawConn, bool) error { return nil }
