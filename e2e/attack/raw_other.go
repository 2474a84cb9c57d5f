//go:build !linux

package attack

import "errors"

// OpenRaw fails: raw sockets are used on Linux only.
func OpenRaw() (Wire, error) { return nil, errors.New("attack: raw sockets are used on Linux only") }
