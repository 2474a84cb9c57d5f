package udp

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openProbe makes a socket that is not connected: the system counts up the IPv4
// Identification of those that are, and the ICRC covers it.
func openProbe(from, _ netip.AddrPort) (*net.UDPConn, error) {
	return net.ListenUDP("udp", net.UDPAddrFromAddrPort(from))
}

func (p *portProbe) send() error {
	_, err := p.conn.WriteToUDPAddrPort(p.packet, p.to)
	return err
}

// isRefusal reports whether an error may be that of a port that is closed.
func isRefusal(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// queueErrors has the system keep ICMP errors with what they quote.
func (p *portProbe) queueErrors() error {
	level, option := unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	if p.to.Addr().Is4() {
		level, option = unix.IPPROTO_IP, unix.IP_RECVERR
	}
	var err error
	if e := p.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, 1) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}

// quoted takes the errors that the system has kept, and reports whether one of
// them says that the port is closed, and quotes the packet.
func (p *portProbe) quoted() (found bool) {
	err := p.raw.Control(func(fd uintptr) {
		var data [1 << 10]byte
		var control [256]byte
		for range maxRefused {
			n, on, _, to, err := unix.Recvmsg(int(fd), data[:], control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			if saysUnreachable(control[:on]) && p.quotes(to, data[:n]) {
				found = true
			}
		}
	})
	return found && err == nil
}

// quotes reports whether an error is of the packet: to is where that went, and
// b what the error quotes after the UDP header. A host need not quote anything
// of it (RFC 792).
func (p *portProbe) quotes(to unix.Sockaddr, b []byte) bool {
	var at netip.AddrPort
	switch to := to.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(to.Addr), uint16(to.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(to.Addr), uint16(to.Port))
	}
	return at == netip.AddrPortFrom(p.to.Addr().WithZone(""), p.to.Port()) && bytes.HasPrefix(p.packet, b)
}

// Types and codes of port unreachable.
const (
	icmpUnreachable, icmpPort   = 3, 3 // RFC 792
	icmp6Unreachable, icmp6Port = 1, 4 // RFC 4443
)

// saysUnreachable reports whether control messages of the queue of errors are
// those of an ICMP message that says port unreachable. The system has parsed
// the message.
func saysUnreachable(control []byte) bool {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return false
	}
	for _, m := range messages {
		v4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if !v4 && !v6 || len(m.Data) < int(unsafe.Sizeof(unix.SockExtendedErr{})) {
			continue
		}
		switch e := (*unix.SockExtendedErr)(unsafe.Pointer(&m.Data[0])); e.Origin {
		case unix.SO_EE_ORIGIN_ICMP:
			return e.Type == icmpUnreachable && e.Code == icmpPort
		case unix.SO_EE_ORIGIN_ICMP6:
			return e.Type == icmp6Unreachable && e.Code == icmp6Port
		}
	}
	return false
}
