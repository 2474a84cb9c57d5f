package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

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
	if addr.Is4() && addr.IsLoopback() && errors.Is(err, syscall.EADDRINUSE) {
		// The server is on this host and has that address: there are
		// more.
		next := netip.MustParseAddr("127.0.0.2")
		if next == addr {
			next = netip.MustParseAddr("127.0.0.1")
		}
		if d, err2 := open(next); err2 == nil {
			dev, err, addr = d, nil, next
			why = "the server is on this host"
		}
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(io.err, "device %v (%s; -d chooses another)\n", addr, why)
	return dev, nil
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
	c, err := net.Dial("udp", net.JoinHostPort(host, strconv.Itoa(verbs.UDPPort)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
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
