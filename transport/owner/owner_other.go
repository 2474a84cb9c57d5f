//go:build !linux || portable

package owner

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/transport/guard"
)

// Owner owns a port. There is none on this system.
type Owner struct{}

// Listen fails: only Linux can lease sockets.
func Listen(c Config) (*Owner, error) {
	return nil, fmt.Errorf("owner: %v: only Linux shares a port among processes: %w", c.Addr, errors.ErrUnsupported)
}

// DefaultSlots returns 0: there are none.
func DefaultSlots() int { return 0 }

// Addr returns nothing.
func (o *Owner) Addr() netip.Addr { return netip.Addr{} }

// Socket returns nothing.
func (o *Owner) Socket() string { return "" }

// Leases returns nothing.
func (o *Owner) Leases() []Lease { return nil }

// Stats returns zeros.
func (o *Owner) Stats() Stats { return Stats{} }

// GuardCounters returns zeros.
func (o *Owner) GuardCounters() (c guard.Counters, secured bool) { return c, false }

// Close does nothing.
func (o *Owner) Close() error { return nil }

// ListAt fails, as List does.
func ListAt(path string) (leases, ended []Lease, err error) {
	return nil, nil, fmt.Errorf("owner: %s: %w", path, errors.ErrUnsupported)
}

// List fails: only Linux can lease sockets.
func List(addr netip.Addr, _ uint16) (leases, ended []Lease, err error) {
	return nil, nil, fmt.Errorf("owner: %v: %w", addr, errors.ErrUnsupported)
}
