package adapter

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// With Config.Telemetry a packet of data asks the switches on its way for what
// they tell. The receiver keeps that of the newest packet of each queue pair,
// and sends it back with the next acknowledgement, selective or not. There it
// goes to congestion control before the acknowledgement is handled. A response
// to a READ has the data of the side that controls how much is asked for: its
// hops go to congestion control at once.

// echoKey is the queue pair that acknowledgements go to: its host and number.
type echoKey struct {
	host uint16
	qpn  rocev2.QPN
}

// echo is what its next acknowledgement brings.
type echo struct{ hops []cc.Hop }

// What telemetry takes on the wire, as in HPCC (SIGCOMM 2019, section 4.1): a
// header, and for each hop that is sent back as much as a switch adds.
const (
	telemetryBytes = 2
	hopBytes       = 8
)

// ask has a packet of data ask for hops, and an acknowledgement bring those of
// the newest packet of data.
func (h *Host) ask(k *record, p *network.Packet) {
	info, _ := rocev2.Opcode(k.data[0]).Info()
	switch info.Operation {
	case rocev2.OpSend, rocev2.OpWrite, rocev2.OpReadResponse:
		p.Flags |= network.Telemetry
		p.Size += telemetryBytes
	case rocev2.OpAcknowledge, rocev2.OpSelectiveAck, rocev2.OpAtomicAcknowledge:
		e := h.echoes[echoKey{p.Dst, destQPN(k)}]
		if e == nil || len(e.hops) == 0 {
			return
		}
		b := h.part.records.bodyOf(k)
		b.hops = append(b.hops[:0], e.hops...)
		e.hops = e.hops[:0]
		p.Size += uint16(telemetryBytes + hopBytes*len(b.hops))
	}
}

// destQPN returns the queue pair that a packet is for.
func destQPN(k *record) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(k.data[4:]) & 0xffffff)
}

// tell takes the hops that a packet has noted, and those that it brings.
func (h *Host) tell(now clock.Time, of *records, k *record, p *network.Packet) {
	noted := h.a.net.Trail(int(h.number))
	if k.body == 0 && len(noted) == 0 {
		return
	}
	q := h.e.Lookup(destQPN(k))
	if q == nil {
		return
	}
	if k.body != 0 {
		if hops := of.bodies.at(k.body - 1).hops; len(hops) > 0 {
			q.Core().Halves().Tell(now, hops)
		}
	}
	if len(noted) == 0 {
		return
	}
	if info, _ := rocev2.Opcode(k.data[0]).Info(); info.Operation == rocev2.OpReadResponse {
		h.part.hops = appendHops(h.part.hops[:0], noted)
		q.Core().Halves().Tell(now, h.part.hops)
		return
	}
	key := echoKey{p.Src, q.Core().Attr().DestQPN}
	e := h.echoes[key]
	if e == nil {
		if h.echoes == nil {
			h.echoes = map[echoKey]*echo{}
		}
		e = new(echo)
		h.echoes[key] = e
	}
	e.hops = appendHops(e.hops[:0], noted)
}

// appendHops appends hops as congestion control has them.
func appendHops(to []cc.Hop, hops []network.Hop) []cc.Hop {
	for i := range hops {
		n := &hops[i]
		to = append(to, cc.Hop{Rate: uint64(n.Rate), Queued: uint64(n.Queued), Sent: uint64(n.Sent), At: toClock(n.At), Node: n.Node, Port: uint32(n.Port)})
	}
	return to
}
