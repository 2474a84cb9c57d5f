//go:build !linux

package udp

import (
	"errors"
	"net"
	"net/netip"
)

// openProbe makes a socket that is connected: other systems tell no others of
// ICMP errors.
func openProbe(from, to netip.AddrPort) (*net.UDPConn, error) {
	return net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
}

func (p *portProbe) send() error {
	_, err := p.conn.Write(p.packet)
	return err
}

// isRefusal reports whether an error is that of a port that is closed.
func isRefusal(err error) bool { return errors.Is(err, portUnreachable) }

// queueErrors does nothing: the system tells the error, and not what it quotes.
func (p *portProbe) queueErrors() error { return nil }

// quoted reports true: the system has compared the ports and the addresses.
func (p *portProbe) quoted() bool { return true }
