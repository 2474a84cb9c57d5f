//go:build !linux

package attack

import "errors"

func openRaw() (Wire, error) { return nil, errors.New("attack: raw sockets are used on Linux only") }
