package devices

import (
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/verbs"
)

// Use returns the devices on the addresses of a place, each with a Ref, and the
// address that stands for them, with the port. A device of the program's, if
// there is one, is used alone, and has no Ref (nil).
func (p *Place) Use(own *verbs.Device) (devs []*verbs.Device, refs []*Ref, at netip.AddrPort, err error) {
	if own != nil {
		addr := p.Addrs[0]
		if p.Any.IsValid() || slices.Contains(p.Addrs, own.Addr()) {
			addr = own.Addr()
		}
		return []*verbs.Device{own}, []*Ref{nil}, netip.AddrPortFrom(addr, p.Port), nil
	}
	if refs, err = p.Open(); err != nil {
		return nil, nil, at, err
	}
	for _, r := range refs {
		devs = append(devs, r.Device())
	}
	addr := p.Any
	if !addr.IsValid() {
		addr = devs[0].Addr()
	}
	return devs, refs, netip.AddrPortFrom(addr, p.Port), nil
}
