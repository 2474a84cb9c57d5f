package engine

import (
	"net/netip"
	"slices"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// A connection manager tells a peer the number of a queue pair that it makes
// only when the peer has answered. Until then the number is held: no other
// queue pair gets it. The first packets of the peer may be quicker than the
// making, so they are kept until the queue pair can take them: a peer of
// another kind would send them again only after seconds. That is in RTS: a
// program that gets a message may answer it at once.

// holds are the numbers that are held.
type holds struct {
	of   map[rocev2.QPN]uint8 // how many packets are kept
	kept []keptPacket         // the oldest first
}

type keptPacket struct {
	qpn    rocev2.QPN
	psn    rocev2.PSN
	packet transport.RxPacket
}

const (
	maxKept       = 256 // packets, of all numbers
	maxKeptOfOne  = 8   // the others are asked for again
	maxKeptOfHost = 32  // of one address, where others need the room
)

// hold holds a number. It reports false if it is held.
func (h *holds) hold(n rocev2.QPN) bool {
	if h.of == nil {
		h.of = map[rocev2.QPN]uint8{}
	}
	if _, held := h.of[n]; held {
		return false
	}
	h.of[n] = 0
	return true
}

// release holds a number no longer, and forgets what was kept.
func (h *holds) release(n rocev2.QPN) {
	if kept := h.of[n]; kept > 0 {
		h.drop(n)
	}
	if delete(h.of, n); len(h.of) == 0 {
		*h = holds{} // a map keeps the memory of a flood
	}
}

// packets returns those that are kept for a number.
func (h *holds) packets(n rocev2.QPN) (packets []transport.RxPacket) {
	if h.of[n] == 0 {
		return nil
	}
	for i := range h.kept {
		if k := &h.kept[i]; k.qpn == n {
			packets = append(packets, k.packet)
		}
	}
	return packets
}

// heard reports whether a packet with a PSN is kept that has come from an
// address for a number.
func (h *holds) heard(n rocev2.QPN, from netip.Addr, psn rocev2.PSN) bool {
	return h.of[n] > 0 && slices.ContainsFunc(h.kept, func(k keptPacket) bool {
		return k.qpn == n && k.packet.Src == from && k.psn == psn
	})
}

func (h *holds) drop(n rocev2.QPN) {
	h.kept = slices.DeleteFunc(h.kept, func(k keptPacket) bool { return k.qpn == n })
}

// keep keeps a request for a number that is held, and reports whether it does.
// When there are too many, the oldest goes; that of its own address if many are
// from there, so that a host with many connections takes nothing from others.
func (h *holds) keep(p *rocev2.Packet, d *transport.RxPacket) bool {
	n := p.BTH.DestQPN
	kept, held := h.of[n]
	if info, _ := p.BTH.Opcode.Info(); !held || kept == maxKeptOfOne || info.Role != rocev2.RoleRequest {
		return false
	}
	if len(h.kept) == maxKept {
		i := h.oldestOf(d.Src)
		h.of[h.kept[i].qpn]--
		h.kept = slices.Delete(h.kept, i, i+1)
	}
	k := keptPacket{n, p.BTH.PSN, *d}
	k.packet.Data = slices.Clone(d.Data)
	h.kept = append(h.kept, k)
	h.of[n]++
	return true
}

// oldestOf returns the place of the oldest packet from an address, if there are
// many, and else that of the oldest.
func (h *holds) oldestOf(from netip.Addr) (oldest int) {
	n := 0
	for i := len(h.kept) - 1; i >= 0; i-- {
		if h.kept[i].packet.Src == from {
			oldest = i
			n++
		}
	}
	if n < maxKeptOfHost {
		return 0
	}
	return oldest
}

// taken reports whether the number of q is not free for it.
func (h *holds) taken(q *QP) bool {
	_, held := h.of[q.qpn]
	return held && !q.held
}
