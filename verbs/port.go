package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// openLinks opens the sockets of a device: those that an owner of the port
// leases, or else the port itself. With Config.Owner it returns the owner.
func (c *Config) openLinks(addr netip.Addr) ([]Link, *owner.Owner, error) {
	if c.Owner {
		return c.ownPort(addr)
	}
	want := lease.Config{Shards: c.Shards, UDP: c.udpConfig()}
	l, err := lease.Open(addr, want)
	if err == nil {
		return l.Links(), nil, nil
	}
	if !errors.Is(err, lease.ErrNoOwner) {
		return nil, nil, err
	}
	if c.Leased {
		return nil, nil, fmt.Errorf("%w that this process can ask; start rocev2d for the address, or a program with Config.Owner, as the same user and in the same network namespace", err)
	}
	group, err := udp.OpenGroup(addr, want.UDP, c.Shards)
	if err != nil {
		// The owner may have begun just now.
		if l, e := lease.Open(addr, want); e == nil {
			return l.Links(), nil, nil
		}
		return nil, nil, err
	}
	links := make([]Link, len(group))
	for i, l := range group {
		links[i] = l
	}
	return links, nil, nil
}

// ownPort makes this process the owner of the port, and takes the first lease.
func (c *Config) ownPort(addr netip.Addr) ([]Link, *owner.Owner, error) {
	o, err := owner.Listen(owner.Config{Addr: addr, UDP: c.udpConfig()})
	if err != nil {
		return nil, nil, causeOf(err)
	}
	l, err := lease.OpenAt(o.Socket(), lease.Config{Shards: c.Shards, UDP: c.udpConfig()})
	if err != nil {
		o.Close()
		return nil, nil, err
	}
	return l.Links(), o, nil
}

// causeOf returns what of an error says why a port could not be opened.
func causeOf(err error) error {
	if open := (*udp.OpenError)(nil); errors.As(err, &open) {
		return open
	}
	return err
}
