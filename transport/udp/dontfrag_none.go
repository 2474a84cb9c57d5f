//go:build !linux && !darwin && !freebsd && !windows

package udp

import "syscall"

// errMessageSize is the system's word for a packet longer than the MTU.
const errMessageSize = syscall.EMSGSIZE

// dontFragment does nothing: this system has no such option for both versions
// of IP, and fragments what is too long.
func dontFragment(syscall.RawConn, bool) error { return nil }
