//go:build !linux && !darwin && !freebsd

package udp

import (
	"errors"
	"syscall"
)

// receiveTOS fails: this system does not tell the traffic class of what arrives
// by IPv4.
func receiveTOS(syscall.RawConn) error { return errors.ErrUnsupported }

func tosOf([]byte) uint8 { return 0 }
