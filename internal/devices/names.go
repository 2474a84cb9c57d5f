package devices

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/gosoftroce/rocev2/verbs"
)

// Fits says which addresses of a name count, such as netip.Addr.Is4.
type Fits func(netip.Addr) bool

// Remotes returns the addresses that a dial to "HOST:PORT" tries, one after the
// other. The host is an address or a name. No host, or an unspecified address,
// stands for this host, as in package net. Port names are those of TCP.
func Remotes(ctx context.Context, fits Fits, address string) ([]netip.AddrPort, error) {
	host, port, err := split(ctx, address)
	if err != nil {
		return nil, err
	}
	addrs, err := addrsOf(ctx, host)
	if host == "" || err == nil && addrs[0].IsUnspecified() {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	} else if err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	for _, a := range addrs {
		if fits(a) {
			all = append(all, netip.AddrPortFrom(a, port))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%q has no address that fits the network", host)
	}
	return all, nil
}

// Place is where a program listens: addresses of this host, and a port.
type Place struct {
	Addrs []netip.Addr // at least one
	Port  uint16

	// Any is the unspecified address, if the place is all addresses of the
	// host, and else not valid.
	Any netip.Addr
}

// PlaceOf returns where "HOST:PORT" is. The host is a local address, an
// interface, of which one address counts, or a name, of which all do. No host,
// or an unspecified address, stands for all addresses of the host as it is now.
func PlaceOf(ctx context.Context, fits Fits, address string) (Place, error) {
	return process.place(ctx, fits, address)
}

func (t *table) place(ctx context.Context, fits Fits, address string) (p Place, err error) {
	host, port, err := split(ctx, address)
	if err != nil {
		return p, err
	}
	p.Port = port
	if host == "" {
		p.Any = netip.IPv6Unspecified()
	} else if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		p.Any = a.Unmap()
	}
	switch {
	case p.Any.Is4() || p.Any.IsValid() && !fits(netip.IPv6Unspecified()):
		p.Any = netip.IPv4Unspecified()
		p.Addrs = slices.DeleteFunc(t.host.addrs(), netip.Addr.Is6)
	case p.Any.IsValid():
		p.Addrs = t.host.addrs()
	default:
		if p.Addrs, err = localAddrs(ctx, host); err != nil {
			return p, err
		}
	}
	p.Addrs = slices.DeleteFunc(p.Addrs, func(a netip.Addr) bool { return !fits(a) })
	if len(p.Addrs) == 0 {
		return p, fmt.Errorf("%q has no address that fits the network", host)
	}
	return p, nil
}

// localAddrs returns the addresses of a local address, an interface, or a name.
func localAddrs(ctx context.Context, host string) ([]netip.Addr, error) {
	a, err := verbs.ResolveAddr(host)
	if err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	if _, literal := netip.ParseAddr(host); literal == nil {
		return nil, err
	}
	addrs, lookup := addrsOf(ctx, host)
	if lookup != nil {
		return nil, fmt.Errorf("%w; and it is no name of a host: %w", err, lookup)
	}
	slices.SortFunc(addrs, netip.Addr.Compare) // IPv4 first
	return slices.Compact(addrs), nil
}

func split(ctx context.Context, address string) (host string, port uint16, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%w: write HOST:PORT, such as 192.0.2.1:7471, [2001:db8::1]:7471 or :7471", err)
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	return host, uint16(n), err
}

// addrsOf returns the addresses of an address or a name, at least one.
func addrsOf(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return addrs, nil
}

// Open returns the devices on the addresses of a place, as Local does. Those
// that cannot be had are left out. If that is all of them, the error wraps that
// of each.
func (p *Place) Open() ([]*Ref, error) { return process.openAll(p) }

func (t *table) openAll(p *Place) (refs []*Ref, err error) {
	var missed missing
	for _, a := range p.Addrs {
		ref, err := t.local(a)
		if err != nil {
			missed = append(missed, err)
			continue
		}
		refs = append(refs, ref)
	}
	switch {
	case len(refs) > 0:
		return refs, nil
	case len(missed) == 1:
		return nil, missed[0]
	}
	return nil, missed
}

// missing says why none of several addresses can be had.
type missing []error

// maxShown bounds the reasons in a text.
const maxShown = 4

func (m missing) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "none of %d addresses can be had: ", len(m))
	shown := m[:min(len(m), maxShown)]
	for i, err := range shown {
		if i > 0 {
			s.WriteString("; ")
		}
		what, advice, _ := strings.Cut(err.Error(), "; ")
		s.WriteString(what)
		if advice != "" && (i+1 == len(shown) || !strings.HasSuffix(shown[i+1].Error(), "; "+advice)) {
			s.WriteString("; " + advice) // once for all that it is for
		}
	}
	if more := len(m) - len(shown); more > 0 {
		fmt.Fprintf(&s, "; and %d more", more)
	}
	return s.String()
}

// Unwrap returns the reasons.
func (m missing) Unwrap() []error { return m }
