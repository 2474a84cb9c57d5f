package switches

import "github.com/gosoftroce/rocev2/fabric/network"

// INT has each switch note its egress port (network.View.Hop) in the packets
// that ask for it, network.Telemetry. That is the telemetry of HPCC (Li et al.,
// SIGCOMM 2019, section 4.1 and figure 7): each hop adds 8 bytes to the packet,
// 4 bits of rate, 24 of time, 20 of bytes sent and 16 of queue length. The
// header before them, 2 bytes with the number of hops and a path ID, is the
// sender's. The values here are not rounded to these bits. Config.Trail and
// Config.MTU must have room for all hops; a packet whose trail is full does not
// grow.
type INT struct {
	Hop int // bytes that each hop adds; 0: 8
}

// INTHeader is the header before the hops, which a sender adds.
const INTHeader = 2

// Wire returns how many bytes a packet has of telemetry after a number of hops.
func (t INT) Wire(hops int) int { return INTHeader + hops*t.hop() }

func (t INT) hop() int { return orDefault(t.Hop, 8) }

// Program implements it.
func (t INT) Program(v *network.View) network.Hooks {
	return network.Hooks{Dequeue: func(p *network.Packet, at network.Place) network.Verdict {
		if p.Flags&network.Telemetry != 0 && v.Note(v.Hop(at.Out)) {
			p.Size += uint16(t.hop())
		}
		return network.Default
	}}
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
