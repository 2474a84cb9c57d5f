package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/verbs"
)

const deviceUsage = "local device: an `address` of this host or an interface"

// openDevice opens the device that the user named, or chooses one: for a
// client the address from which the server is reached, else the first address
// that is not of the loopback interface.
func openDevice(io streams, name, server string, open opener) (*verbs.Device, error) {
	if name != "" {
		addr, err := verbs.ResolveAddr(name)
		if err != nil {
			return nil, fmt.Errorf("open device %q: %w", name, err)
		}
		return open(addr)
	}
	addr, why, err := chooseAddress(server)
	if err != nil {
		return nil, err
	}
	dev, err := open(addr)
	if errors.Is(err, syscall.EADDRINUSE) && server != "" && here(server) {
		// Often it is the server itself that has the address.
		if d, err2 := openLoopback(open); err2 == nil {
			dev, err, addr = d, nil, d.Addr()
			why = "the server is on this host"
		}
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(io.err, "device %v (%s; %s chooses another)\n", addr, why, cmp.Or(io.deviceFlag, "-d"))
	return dev, nil
}

// here reports whether the server is on this host, where loopback addresses
// reach it. Of IPv6 there is only one.
func here(server string) bool {
	c, err := towards(server)
	if err != nil {
		return false
	}
	defer c.Close()
	addr := c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	_, own := udp.InterfaceOf(addr)
	return addr.Is4() && (own || addr.IsLoopback())
}

// openLoopback opens a device on a free loopback address: there are 16 million,
// of which all belong to the host on Linux.
func openLoopback(open opener) (dev *verbs.Device, err error) {
	addr := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	for range 64 {
		if dev, err = open(addr); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		addr = addr.Next()
	}
	return dev, err
}

func chooseAddress(server string) (addr netip.Addr, why string, err error) {
	if server != "" {
		if addr, err := routeTo(server); err == nil {
			return addr, "on the route to " + server, nil
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return addr, "", fmt.Errorf("list the addresses of this host: %w", err)
	}
	var second netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4():
			return p.Addr(), "the first address of this host", nil
		case !second.IsValid():
			second = p.Addr()
		}
	}
	if second.IsValid() {
		return second, "the first address of this host", nil
	}
	return netip.MustParseAddr("127.0.0.1"), "this host has no other address", nil
}

// routeTo asks the kernel for the local address from which a host is reached.
// Nothing is sent.
func routeTo(host string) (netip.Addr, error) {
	c, err := towards(host)
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func towards(host string) (net.Conn, error) {
	return net.Dial("udp", net.JoinHostPort(host, strconv.Itoa(verbs.UDPPort)))
}

// parseMTU turns a number of bytes into a path MTU.
func parseMTU(bytes int) (verbs.MTU, error) {
	if bytes == 0 {
		return 0, nil
	}
	m, err := verbs.MTUOf(bytes)
	if err != nil {
		return 0, usagef("-m %d: a path MTU is 256, 512, 1024, 2048 or 4096 bytes", bytes)
	}
	return m, nil
}

func checkPort(port int) error {
	if port < 1 || port > 65535 {
		return usagef("-p %d: a port is a number from 1 to 65535", port)
	}
	return nil
}
