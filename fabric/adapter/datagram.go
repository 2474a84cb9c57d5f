package adapter

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// Addr returns the address of a host: 10.0.0.0/8, with its number.
func Addr(host int) netip.Addr { return addrOf(uint16(host)) }

// Datagram returns what a packet under way has from its BTH on, as far as there
// are bytes, and its length from the BTH to the pad, without the ICRC. What
// there are no bytes of is payload. With Config.Real all is there, with the
// ICRC at its end. Of a packet that was trimmed it is what is left of it. It is
// for what looks on (network.Network.Tap and Watch) where the network has one
// part, and valid until the packet is gone.
func (a *Adapters) Datagram(p *network.Packet) (data []byte, length int) {
	of := &a.parts[p.Handle>>handleBits].records
	k := of.at(p.Handle)
	if whole := of.whole(k); whole != nil {
		return whole, int(k.n)
	}
	return k.data[:min(int(k.n), recordLen)], int(k.n)
}
