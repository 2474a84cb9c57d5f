package switches

import "github.com/gosoftroce/rocev2/fabric/network"

// INT has each switch note its egress port (network.View.Hop) in the packets
// that ask for it, network.Telemetry. That is the telemetry of HPCC (Li et al.,
// SIGCOMM 2019, section 4.1 and figure 7): each hop adds 8 bytes to the packet,
// 4 bits of rate, 24 of time, 20 of bytes sent and 16 of queue length; the
// first one a header of 2 bytes before them, number of hops and a path ID. The
// values here are not rounded to these bits. Config.Trail and Config.MTU must
// have room for all hops; a packet whose trail is full does not grow.
type INT struct {
	Hop    int // bytes that each hop adds; 0: 8
	Header int // and the first one, before; 0: 2
}

// Wire returns how many bytes a packet grows by in a number of hops.
func (t INT) Wire(hops int) int {
	if hops == 0 {
		return 0
	}
	return t.header() + hops*t.hop()
}

func (t INT) hop() int    { return orDefault(t.Hop, 8) }
func (t INT) header() int { return orDefault(t.Header, 2) }

// Program implements it.
func (t INT) Program(v *network.View) network.Hooks {
	return network.Hooks{Dequeue: func(p *network.Packet, at network.Place) network.Verdict {
		if p.Flags&network.Telemetry == 0 || !v.Note(v.Hop(at.Out)) {
			return network.Default
		}
		if len(v.Trail()) == 1 {
			p.Size += uint16(t.header())
		}
		p.Size += uint16(t.hop())
		return network.Default
	}}
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
