package adapter

import (
	"math/bits"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
)

// Foreign is a packet of another protocol than RoCE.
type Foreign struct {
	Header []byte // what is above IP, up to MostForeign bytes; payload is not there
	Length int    // of the header and the payload
	Host   int    // that it is for, or from
	Port   uint16 // chooses the way, as a UDP source port
	DSCP   uint8
	ECN    uint8
}

// MostForeign is how long the header of a Foreign may be.
const MostForeign = recordLen

// Protocol is what else sends and receives at a host, by the cable of its
// adapter.
type Protocol interface {
	// Classes returns the classes in which there may be a packet.
	Classes() uint8
	// Next writes the next packet to p, and reports whether there is one:
	// of a class that is not in paused (see network.Host). It appends to
	// p.Header, which is empty.
	Next(now event.Time, paused uint8, p *Foreign) bool
	// Receive takes a packet. p is valid only during the call. What is to
	// be done at other hosts is done by Host.At, or after the call.
	Receive(now event.Time, p *Foreign)
}

// foreign is the mark of a packet of another protocol.
const foreign network.Flags = 1 << 6

// beside is a protocol beside the adapter.
type beside struct {
	Protocol
	ahead [network.NumClasses]int // bytes that the adapter has sent more, while both had some
	p     Foreign
}

// Beside has a protocol share the cable of the host. Classes share it as those
// of the adapter do (Config.Shares); of one class, or without shares, the
// adapter and the protocol have half each while both have packets. Call it
// before the network runs.
func (h *Host) Beside(p Protocol) { h.beside = &beside{Protocol: p} }

// Ready says that the protocol beside has something to send.
func (h *Host) Ready() { h.a.net.Kick(int(h.number), 0) }

// IsForeign reports whether a packet is of a protocol beside the adapters.
func IsForeign(p *network.Packet) bool { return p.Flags&foreign != 0 }

// pullInTurn pulls from the adapter and from what is beside it.
func (h *Host) pullInTurn(now event.Time, paused uint8, p *network.Packet) bool {
	if h.pullReturn(paused, p) {
		return true
	}
	left := uint8(0)
	if h.sharing != nil {
		left = (uint8(h.e.Classes()) | h.beside.Classes()) &^ paused
	}
	for left&(left-1) != 0 { // there is something to share
		class := h.sharing.next(left)
		if h.pullHalves(now, ^(uint8(1) << class), p, class) {
			h.sharing.sent(class, left, int(p.Size))
			return true
		}
		left &^= 1 << class // it had nothing to send
	}
	class := uint8(0)
	if left != 0 {
		class = uint8(bits.Len8(left) - 1)
	}
	return h.pullHalves(now, paused, p, class)
}

// pullHalves pulls from the one that has sent less of what they share.
func (h *Host) pullHalves(now event.Time, paused uint8, p *network.Packet, class uint8) bool {
	ahead := &h.beside.ahead[class]
	if *ahead <= 0 {
		if h.pull(now, paused, p) {
			*ahead += int(p.Size)
			return true
		}
		*ahead = 0
		return h.pullForeign(now, paused, p)
	}
	if h.pullForeign(now, paused, p) {
		*ahead -= int(p.Size)
		return true
	}
	*ahead = 0
	return h.pull(now, paused, p)
}

func (h *Host) pullForeign(now event.Time, paused uint8, p *network.Packet) bool {
	handle, k := h.part.take()
	x := &h.beside.p
	*x = Foreign{Header: k.data[:0]}
	if !h.beside.Next(now, paused, x) {
		h.part.release(handle)
		return false
	}
	k.n, k.trafficClass, k.entropy = uint16(x.Length), x.DSCP<<2|x.ECN, 0
	clear(k.data[copy(k.data[:], x.Header):])
	p.Handle, p.Dst, p.SrcPort = handle, uint16(x.Host), x.Port
	p.DSCP, p.ECN, p.Flags = x.DSCP, x.ECN, foreign
	p.Size = uint16(network.WireSize(ipv4Header + x.Length))
	return true
}

// receiveForeign takes a packet of what is beside. Of one that a switch has
// trimmed the payload has not come: it counts as lost.
func (h *Host) receiveForeign(now event.Time, k *record, p *network.Packet) {
	if h.beside == nil || p.Flags&network.Trimmed != 0 {
		return
	}
	x := &h.beside.p
	*x = Foreign{Header: k.data[:min(int(k.n), recordLen)], Length: int(k.n), Host: int(p.Src), Port: p.SrcPort, DSCP: p.DSCP, ECN: p.ECN}
	h.beside.Receive(now, x)
}

const ipv4Header = 20
