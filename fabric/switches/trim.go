package switches

import "github.com/gosoftroce/rocev2/fabric/network"

// Trim has a switch cut the payload off a packet for which there is no room,
// and send the header on in another class (NDP: Handley et al., SIGCOMM 2017,
// section 3.1; Ultra Ethernet 1.0, packet trimming). The receiver learns at
// once what is lost. Where there is no room for the header either, the packet
// is dropped as without Trim.
//
// How full a queue may be is for the classes of the switch to say
// (network.Class.EgressMax), and so is how much of the cable headers get:
// Strict, or a Weight, as NDP's 10 headers for a packet.
type Trim struct {
	Classes uint8 // bit c set: packets of class c are trimmed
	Header  int   // bytes on the wire that are left; 0: 84, the least
	DSCP    uint8 // of what is left: its class should be another one
}

// Program implements it.
func (t Trim) Program(*network.View) network.Hooks {
	size := uint16(orDefault(t.Header, network.WireSize(0)))
	return network.Hooks{Enqueue: func(p *network.Packet, at network.Place, why network.Drop) network.Verdict {
		full := why == network.EgressFull || why == network.IngressFull
		if full && t.Classes>>at.Class&1 != 0 && p.Flags&network.Trimmed == 0 && p.Size > size {
			p.Size, p.DSCP = size, t.DSCP
			p.Flags |= network.Trimmed
		}
		return network.Default
	}}
}
