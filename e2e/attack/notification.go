package attack

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// Notification returns a congestion notification (IBTA A17.9.3) from src to a
// queue pair of dst, both with the UDP port of RoCEv2, and with its ICRC.
func Notification(src, dst netip.Addr, to verbs.QPN) []byte {
	flow := rocev2.NewFlow(src, dst, rocev2.UDPPort, rocev2.UDPPort)
	return flow.Seal(0, notification(to))
}

func notification(to verbs.QPN) []byte {
	return encode(rocev2.CNP, to, 0, func(p *rocev2.Packet) { p.BTH.BECN = true })
}
