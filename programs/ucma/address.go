//go:build linux

package ucma

import (
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

var unspecified = abi.SockAddr{Family: abi.AFInet, Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), 0)}

// refused returns why an address is not taken: librdmacm asks for one of the
// family IB to see whether that is supported.
func refused(a *abi.SockAddr) uabi.Errno {
	switch {
	case a.Bad:
		return uabi.EINVAL
	case a.Len() == 0:
		return uabi.EAFNOSUPPORT
	}
	return 0
}

// address returns an address with its zone.
func address(a *abi.SockAddr) netip.AddrPort {
	ip := a.Addr.Addr().Unmap()
	if ip.Is6() && ip.IsLinkLocalUnicast() && a.Scope != 0 {
		zone := strconv.FormatUint(uint64(a.Scope), 10)
		if i, err := net.InterfaceByIndex(int(a.Scope)); err == nil {
			zone = i.Name
		}
		ip = ip.WithZone(zone)
	}
	return netip.AddrPortFrom(ip, a.Addr.Port())
}

// scopeOf returns the index of the interface of a link-local address.
func scopeOf(a netip.Addr) uint32 {
	if a.Zone() == "" {
		return 0
	}
	if i, err := net.InterfaceByName(a.Zone()); err == nil {
		return uint32(i.Index)
	}
	n, _ := strconv.ParseUint(a.Zone(), 10, 32)
	return uint32(n)
}

// deviceOn returns the device on a local address.
func deviceOn(devs []*verbs.Device, a netip.Addr) (*verbs.Device, uabi.Errno) {
	for _, d := range devs {
		own := d.Addr()
		if own.WithZone("").Unmap() == a.WithZone("").Unmap() && (a.Zone() == "" || own.Zone() == "" || a.Zone() == own.Zone()) {
			return d, 0
		}
	}
	switch {
	case len(devs) > 0 && (a == localhost4 || a == localhost6):
		return devs[0], 0 // of libfabric, for example
	case ownAddress(a):
		return nil, uabi.ENODEV
	}
	return nil, uabi.EADDRNOTAVAIL
}

// A program that binds to localhost has the first device, as with Linux 6.12,
// whatever the address of that device. All other loopback addresses are those
// of devices.
var localhost4, localhost6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()

// ownAddress reports whether an address is of this host.
func ownAddress(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, i := range addrs {
		if n, ok := i.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == a.WithZone("") {
				return true
			}
		}
	}
	return false
}

// towards returns the device that leads to a peer: the peer's own, that on the
// address that the routes name, or else the first that could do.
func towards(devs []*verbs.Device, peer netip.Addr) *verbs.Device {
	source := routeSource(peer)
	for _, want := range []netip.Addr{peer, source} {
		for _, d := range devs {
			if want.IsValid() && d.Addr().WithZone("").Unmap() == want.WithZone("") {
				return d
			}
		}
	}
	for _, d := range devs {
		own := d.Addr().Unmap()
		if own.Is4() == peer.Is4() && (peer.IsMulticast() || own.IsLoopback() == peer.IsLoopback()) {
			return d
		}
	}
	return nil
}

// routeSource asks the routes, by a socket that sends nothing.
func routeSource(peer netip.Addr) netip.Addr {
	s, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, verbs.UDPPort)))
	if err != nil {
		return netip.Addr{}
	}
	defer s.Close()
	return s.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}

func (c *Client) bind(in *abi.BindCmd) ([]byte, uabi.Errno) {
	if errno := refused(&in.Addr); errno != 0 {
		return nil, errno
	}
	i, errno := c.ids.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	return nil, c.bindTo(i, in.Addr)
}

func (c *Client) bindTo(i *ident, sa abi.SockAddr) uabi.Errno {
	a := address(&sa)
	if i.wild || i.id.LocalAddr().IsValid() {
		return uabi.EINVAL
	}
	if !a.Addr().IsUnspecified() {
		d, errno := deviceOn(c.devices(), a.Addr())
		if errno != 0 {
			return errno
		}
		a = netip.AddrPortFrom(d.Addr(), a.Port())
	}
	if !mayBind(c, a.Port()) {
		return uabi.EACCES
	}
	if err := i.id.BindAddr(a); err != nil {
		return errnoOf(err)
	}
	i.wild = a.Addr().IsUnspecified()
	i.wildIs6 = a.Addr().Is6()
	return 0
}

// mayBind reports whether the program may have a port. As in Linux,
// no setting changes which these are: that of sockets is not looked at.
func mayBind(c *Client, port uint16) bool {
	return port == 0 || port >= 1024 || c.program.LowPorts == nil || c.program.LowPorts()
}

func (c *Client) resolve(in *abi.ResolveCmd) ([]byte, uabi.Errno) {
	if errno := refused(&in.Dst); errno != 0 {
		return nil, errno
	}
	if in.Src.Family != 0 {
		if errno := refused(&in.Src); errno != 0 {
			return nil, errno
		}
	}
	i, errno := c.ids.usable(in.ID)
	if errno != 0 {
		return nil, errno
	}
	src, dst := address(&in.Src), address(&in.Dst)
	return nil, c.resolveTo(i, src, dst, time.Duration(in.Timeout)*time.Millisecond)
}

// resolveTo resolves an address. What is wrong with src is an error of the
// command; what comes of dst is an event.
func (c *Client) resolveTo(i *ident, src, dst netip.AddrPort, timeout time.Duration) uabi.Errno {
	dev := i.id.Device()
	if i.wild {
		dev = nil
	}
	bound := i.wild || i.id.LocalAddr().IsValid()
	if given := src.Addr().IsValid() && !src.Addr().IsUnspecified(); given && dev == nil {
		var errno uabi.Errno
		if dev, errno = deviceOn(c.devices(), src.Addr()); errno != 0 {
			return errno
		}
	}
	if dev == nil {
		dev = towards(c.devices(), dst.Addr())
	}
	if dev == nil {
		c.queue.fail(i, cm.EventAddrError, uabi.ENODEV)
		return 0
	}
	if dst.Addr().IsUnspecified() { // this host
		dst = netip.AddrPortFrom(dev.Addr(), dst.Port())
	}
	port := src.Port()
	if bound {
		port = 0
	}
	if !mayBind(c, port) {
		return uabi.EACCES
	}
	if err := i.id.ResolveAddr(netip.AddrPortFrom(dev.Addr(), port), dst, timeout); err != nil {
		return errnoOf(err)
	}
	if i.id.PeerAddr().IsValid() {
		i.wild = false
	}
	return 0
}

func (c *Client) resolveRoute(i *ident, value uint32) ([]byte, uabi.Errno) {
	return nil, c.routeOf(i, time.Duration(value)*time.Millisecond)
}

func (c *Client) routeOf(i *ident, timeout time.Duration) uabi.Errno {
	err := i.id.ResolveRoute(timeout)
	if err == nil {
		i.routed = true
	}
	return errnoOf(err)
}

// route returns what the program may ask of the ID. devs are the devices that
// there are.
func (i *ident) route(devs []Device) *abi.Route {
	local, peer := i.id.LocalAddr(), i.id.PeerAddr()
	dev := i.id.Device()
	if i.wild {
		dev = nil
		any := netip.IPv4Unspecified()
		if i.wildIs6 {
			any = netip.IPv6Unspecified()
		}
		local = netip.AddrPortFrom(any, local.Port())
	}
	r := &abi.Route{Local: abi.Of(local, scopeOf(local.Addr())), Peer: abi.Of(peer, scopeOf(peer.Addr()))}
	if dev == nil {
		return r
	}
	r.NodeGUID, r.Port = dev.Query().NodeGUID, 1
	for _, d := range devs {
		if d.Dev == dev {
			r.Index = uint32(d.Index)
		}
	}
	if i.routed {
		r.Path = &abi.Path{SGID: local.Addr(), DGID: peer.Addr(), MTU: uint8(dev.PathMTU(peer.Addr())), TrafficClass: i.class,
			HopLimit: hopLimit, FlowLabel: (uint32(local.Port())*31 + uint32(peer.Port())) & 0xfffff, Rate: rate10, LifeTime: lifeTime}
	}
	return r
}

// What Linux says of a path: 10 Gb/s, and that a packet lives 0.27 s. The local
// ACK timeout is twice that, 0.54 s: with seven retries a connection outlasts a
// peer that gets no processor for 4 s.
const (
	rate10     = 3
	lifeTime   = 16
	ackTimeout = lifeTime + 1
)

func (c *Client) queryRoute(cmd *abi.Command) ([]byte, uabi.Errno) {
	return answer(c, cmd, func(r *abi.Route, _ *ident, _ uint32) []byte { return abi.RouteReply(r, cmd.Out) })
}

func (c *Client) query(cmd *abi.Command) ([]byte, uabi.Errno) {
	in, errno := abi.ParseID(cmd.Number, cmd.In)
	if errno == 0 && in.Value > abi.QueryGID {
		return nil, uabi.ENOSYS
	}
	return answer(c, cmd, func(r *abi.Route, i *ident, option uint32) []byte {
		switch option {
		case abi.QueryAddr:
			return abi.AddrReply(r, cmd.Out)
		case abi.QueryPath:
			return abi.PathReply(r, cmd.Out)
		}
		space := i.id.Space()
		return abi.GIDReply(r, uint64(space.Service(r.Local.Addr.Port())), uint64(space.Service(r.Peer.Addr.Port())), cmd.Out)
	})
}

// answer answers a question about an ID.
func answer(c *Client, cmd *abi.Command, reply func(r *abi.Route, i *ident, option uint32) []byte) ([]byte, uabi.Errno) {
	i, value, errno := c.ids.named(cmd)
	if errno != 0 {
		return nil, errno
	}
	b := reply(i.route(c.devs()), i, value)
	if b == nil {
		return nil, uabi.ENOSPC
	}
	return b, 0
}
