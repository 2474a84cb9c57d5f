//go:build !linux || portable

package lease

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/transport"
)

// Lease is a part of a port. There is none on this system.
type Lease struct{}

// Open finds no owner.
func Open(netip.Addr, Config) (*Lease, error) { return nil, ErrNoOwner }

// OpenAt finds no owner.
func OpenAt(string, Config) (*Lease, error) { return nil, ErrNoOwner }

// OwnerPID finds no owner.
func OwnerPID(netip.Addr, uint16) int { return 0 }

// Sockets finds no owner.
func Sockets() []string { return nil }

// Links returns nothing.
func (l *Lease) Links() []transport.Link { return nil }
