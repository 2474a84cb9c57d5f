//go:build !unix

package udp

import (
	"net"
	"net/netip"
)

// listenGroup makes a socket that shares the port with others. Windows binds
// none to a group. What comes to it for another address has no right ICRC for
// the group, and is dropped for that.
func listenGroup(at netip.AddrPort, _ uint32) (*net.UDPConn, error) {
	network := "udp6"
	if at.Addr().Is4() {
		network = "udp4"
	}
	return net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
}
