package cm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"

	"github.com/gosoftroce/rocev2/verbs"
)

// binding is what an ID is bound to: devices, and a port that is its own on all
// of them. It is not safe for concurrent use.
type binding struct {
	space  PortSpace
	held   []held         // one device, but for a listener on all
	m      *manager       // of the device; nil where there is none, or several
	local  netip.AddrPort // with the port
	port   bool           // the port is taken
	wild   bool           // bound to an unspecified address,
	family netip.Addr     // this one
	reuse  bool           // the port may be shared
	afOnly bool           // an unspecified IPv6 address stands for no IPv4 device
}

// to gets devices and the port.
func (b *binding) to(ch *EventChannel, addr netip.AddrPort) error {
	found, err := ch.local(addr.Addr(), b.afOnly)
	if err != nil {
		return err
	}
	if err := b.use(found, addr); err != nil {
		return err
	}
	b.family = addr.Addr()
	b.wild = !b.family.IsValid() || b.family.IsUnspecified()
	return nil
}

// use takes devices, and a port that is the same on all.
func (b *binding) use(found []held, addr netip.AddrPort) (err error) {
	defer func() {
		if err != nil {
			for _, h := range found {
				h.release()
			}
		}
	}()
	port, err := b.takePorts(found, addr.Port())
	for try := 1; err != nil && addr.Port() == 0 && try < portTries && errors.Is(err, syscall.EADDRINUSE); try++ {
		port, err = b.takePorts(found, 0) // the port that is free on one device is not on another
	}
	if err != nil {
		return err
	}
	if port == 0 { // on no device is any in use
		port = uint16(firstEphemeral + rand.Uint32N(1<<16-firstEphemeral))
	}
	local := addr.Addr()
	if len(found) == 1 {
		if b.m, err = managerOf(found[0].dev); err != nil {
			return err
		}
		local = found[0].dev.Addr()
	}
	b.held, b.port = found, true
	b.local = netip.AddrPortFrom(local, port)
	return nil
}

// takePorts takes a port on all of some devices, or on none.
func (b *binding) takePorts(found []held, port uint16) (uint16, error) {
	for i, h := range found {
		m, err := managerOf(h.dev)
		if err == nil {
			var got uint16
			if got, err = m.ports.take(b.space, port, b.reuse); err == nil {
				port = got
			}
		}
		if err != nil {
			for _, h := range found[:i] {
				if m := existingManager(h.dev); m != nil {
					m.ports.give(b.space, port)
				}
			}
			return 0, err
		}
	}
	return port, nil
}

// release gives back what use has taken.
func (b *binding) release() {
	for _, h := range b.held {
		if m := existingManager(h.dev); b.port && m != nil {
			m.ports.give(b.space, b.local.Port())
		}
		h.release()
	}
	b.held, b.port = nil, false
}

// choose leaves a binding to several devices on one: that of src, or
// the first one of the peer's IP version.
func (b *binding) choose(src, dst netip.Addr) error {
	i := slices.IndexFunc(b.held, func(h held) bool {
		own := h.dev.Addr().WithZone("").Unmap()
		if src.IsValid() && !src.IsUnspecified() {
			return own == src.WithZone("").Unmap()
		}
		return own.Is4() == dst.Is4()
	})
	if i < 0 {
		return errors.New("the ID is bound to several devices, and none of them leads there")
	}
	m, err := managerOf(b.held[i].dev)
	if err != nil {
		return err
	}
	kept := b.held[i]
	b.held = slices.Delete(b.held, i, i+1)
	b.release()
	b.m, b.held, b.port = m, []held{kept}, true
	b.local = netip.AddrPortFrom(kept.dev.Addr(), b.local.Port())
	return nil
}

// add uses one more device, where bound to the unspecified address. listen is
// called when the port is taken there, and gets the device.
func (b *binding) add(d *verbs.Device, listen func(held) error) {
	if !b.wild || !covers(b.family, b.afOnly, d) || slices.ContainsFunc(b.held, func(h held) bool { return h.dev == d }) {
		return
	}
	m, err := managerOf(d)
	if err != nil {
		return
	}
	if _, err := m.ports.take(b.space, b.local.Port(), b.reuse); err != nil {
		return
	}
	h := hold(d, nil)
	if listen(h) != nil {
		m.ports.give(b.space, b.local.Port())
		return
	}
	if b.held = append(b.held, h); len(b.held) > 1 {
		b.m, b.local = nil, netip.AddrPortFrom(b.family, b.local.Port())
	} else {
		b.m, b.local = m, netip.AddrPortFrom(d.Addr(), b.local.Port())
	}
}

// towards binds to the device that leads to dst, or leaves what is bound to
// several devices on one of them.
func (b *binding) towards(ch *EventChannel, src, dst netip.AddrPort) error {
	if a := dst.Addr(); !a.IsValid() || a.IsUnspecified() {
		return fmt.Errorf("%v is not the address of a host", a)
	}
	was := b.port
	bound := src.Addr().IsValid() && !src.Addr().IsUnspecified()
	switch {
	case was && len(b.held) != 1:
		if err := b.choose(src.Addr(), dst.Addr()); err != nil {
			return err
		}
	case was:
	case bound:
		if err := b.to(ch, src); err != nil {
			return err
		}
	default:
		h, err := ch.towards(dst.Addr())
		if err != nil {
			return err
		}
		if err := b.use([]held{h}, netip.AddrPortFrom(h.dev.Addr(), src.Port())); err != nil {
			return err
		}
	}
	if dst.Addr().IsMulticast() {
		return nil // for JoinMulticast
	}
	err := checkPeer(b.m.dev, dst.Addr())
	if err != nil && !was {
		b.release()
		b.m, b.local = nil, netip.AddrPort{}
	}
	return err
}
