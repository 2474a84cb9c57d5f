//go:build !linux

package probe

import (
	"context"
	"net/netip"
	"time"
)

// Prober sends probes from one address to another.
type Prober struct{}

// Open fails: see ErrUnsupported.
func Open(local netip.Addr, to netip.AddrPort) (*Prober, error) { return nil, ErrUnsupported }

// OpenEcho fails: see ErrUnsupported.
func OpenEcho(local, peer netip.Addr) (*Prober, error) { return nil, ErrUnsupported }

// Probe fails: see ErrUnsupported.
func (p *Prober) Probe(ctx context.Context, hops, size int, timeout time.Duration) (Answer, error) {
	return Answer{}, ErrUnsupported
}

// Close does nothing.
func (p *Prober) Close() error { return nil }
