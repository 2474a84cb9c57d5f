// Package dontfrag has UDP sockets send packets that no host and no router
// fragments.
package dontfrag

import "syscall"

// Set has the socket send unfragmented packets. On systems that have no such
// option it does nothing, and what is too long is fragmented: OpenBSD and
// NetBSD have one for IPv6 alone.
func Set(c syscall.RawConn, v4 bool) error { return set(c, v4) }
