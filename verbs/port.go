package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/transport/lease"
	"github.com/gosoftroce/rocev2/transport/owner"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// holding is what a device has beside its links.
type holding struct {
	port *owner.Owner // nil: the device does not own it
	keys *guarded     // nil: packets go in clear, or the owner of the port decides
}

func (h *holding) close() (err error) {
	if h.port != nil {
		err = h.port.Close()
	}
	h.keys.close()
	return err
}

// openLinks opens the sockets of a device: those that an owner of the port
// leases, or else the port itself, with what belongs to it. Where it has them
// seal, it has wrapped them before, and sets c.Wrap to nil.
func (c *Config) openLinks(addr netip.Addr) ([]Link, holding, error) {
	if c.Owner {
		return c.ownPort(addr)
	}
	want := lease.Config{Shards: c.Shards, UDP: c.udpConfig()}
	l, err := lease.Open(addr, want)
	if err == nil {
		return c.leased(l)
	}
	if !errors.Is(err, lease.ErrNoOwner) {
		return nil, holding{}, err
	}
	if c.Leased {
		return nil, holding{}, fmt.Errorf("%w that this process can ask; start rocev2d for the address, or a program with Config.Owner, as the same user and in the same network namespace", err)
	}
	group, err := udp.OpenGroup(addr, want.UDP, c.Shards)
	if err != nil {
		// The owner may have begun just now.
		if l, e := lease.Open(addr, want); e == nil {
			return c.leased(l)
		}
		return nil, holding{}, err
	}
	links := make([]Link, len(group))
	for i, l := range group {
		links[i] = l
	}
	if c.Secure == nil {
		return links, holding{}, nil
	}
	keys, err := c.secure(links[0].Addr(), len(links), false)
	if err != nil {
		closeLinks(links)
		return nil, holding{}, err
	}
	c.wrap(links)
	c.Wrap = nil
	keys.wrap(links)
	return links, holding{keys: keys}, nil
}

// wrap has links wrapped as the program wants.
func (c *Config) wrap(links []Link) {
	if c.Wrap == nil {
		return
	}
	for i, l := range links {
		links[i] = c.Wrap(l)
	}
}

var errOwnerSecures = errors.New("field Secure: the port has an owner, which decides whether it is secured ([device.secure] of rocev2d); take the field out, or end the owner")

// leased takes a part of a port.
func (c *Config) leased(l *lease.Lease) ([]Link, holding, error) {
	if c.Secure != nil {
		closeLinks(l.Links())
		return nil, holding{}, errOwnerSecures
	}
	return l.Links(), holding{}, nil
}

func closeLinks(links []Link) {
	for _, l := range links {
		l.Close()
	}
}

// ownPort makes this process the owner of the port, and takes the first lease.
func (c *Config) ownPort(addr netip.Addr) (links []Link, h holding, err error) {
	oc := owner.Config{Addr: addr, UDP: c.udpConfig()}
	if c.Secure != nil {
		oc.Slots = owner.DefaultSlots() // peers are told
		if h.keys, err = c.secure(addr, oc.Slots, true); err != nil {
			return nil, h, err
		}
		oc.Secured = h.keys.secured()
	}
	if h.port, err = owner.Listen(oc); err != nil {
		h.port = nil
		h.keys.close()
		return nil, h, causeOf(err)
	}
	l, err := lease.OpenAt(h.port.Socket(), lease.Config{Shards: c.Shards, UDP: c.udpConfig()})
	if err != nil {
		_ = h.close()
		return nil, h, err
	}
	return l.Links(), h, nil
}

// causeOf returns what of an error says why a port could not be opened.
func causeOf(err error) error {
	if open := (*udp.OpenError)(nil); errors.As(err, &open) {
		return open
	}
	return err
}
