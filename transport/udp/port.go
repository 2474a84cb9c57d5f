package udp

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gosoftroce/rocev2/transport"
)

// PortStatus asks the system for the interface that has the link's address.
func (l *Link) PortStatus() transport.PortStatus {
	if l.isAbroad() {
		return transport.PortStatus{} // the interface is not visible here
	}
	return portStatus(l.addr)
}

func portStatus(addr netip.Addr) transport.PortStatus {
	ifi, ok := InterfaceOf(addr)
	if !ok {
		// A local route makes an address ours that no interface has.
		if c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0))); err == nil {
			c.Close()
			return transport.PortStatus{}
		}
		return transport.PortStatus{State: transport.PortNoAddress}
	}
	s := transport.PortStatus{Interface: ifi.Name}
	switch {
	case ifi.Flags&net.FlagUp == 0:
		s.State = transport.PortDisabled
	case ifi.Flags&net.FlagRunning == 0:
		s.State = transport.PortNoCarrier
	default:
		s.Speed = interfaceSpeed(&ifi)
	}
	return s
}

// interfaceSpeed returns Mb/s from sysfs, 0 where there is none, as with
// loopback or on other systems than Linux.
func interfaceSpeed(ifi *net.Interface) int {
	read := func(name string) int {
		b, err := os.ReadFile(filepath.Join("/sys/class/net", ifi.Name, name))
		if err != nil {
			return 0
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return 0
		}
		return n
	}
	// The mounted sysfs may show another network namespace.
	if read("ifindex") != ifi.Index {
		return 0
	}
	return max(read("speed"), 0)
}
