package engine

import (
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// The packets of a queue pair may be sealed (package transport/psp). The link
// seals and opens; it says of a packet that it has opened with which security
// association. Those of a queue pair have its number in the low 24 bits of
// their SPIs, so that a packet that was sealed for one is taken by no other.
//
// Two queue pairs begin in clear: their programs agree on keys over them. Then
// each accepts sealed packets, tells its peer so, and seals what it sends when
// it was told so itself. A queue pair that was sent a sealed packet takes none
// in clear any more: the peer sends none, what it sends again included. What
// was on the way in clear then is lost, and is sent again sealed.

// Security is what a queue pair takes.
type Security uint8

// The values of Security.
const (
	SecurityClear  Security = iota // packets in clear alone
	SecurityEither                 // sealed ones, too, until the first has come
	SecuritySealed                 // sealed ones alone
)

// Security returns what q takes.
func (q *QP) Security() Security { return q.security }

// Accept has q take sealed packets, and none in clear after the first of them.
func (q *QP) Accept() { q.security = max(q.security, SecurityEither) }

// Seal has packets of q, which has a peer, leave with a security association
// from now on, also those that were sent before and are sent again. It accepts
// sealed packets already.
func (q *QP) Seal(e *Engine, spi uint32) {
	p := q.path
	q.path = q.peer.path(e.cfg.Addr, transport.Path{Dst: p.Dst, SrcPort: p.SrcPort, TrafficClass: p.TrafficClass,
		HopLimit: p.HopLimit, FlowLabel: p.FlowLabel, Slot: p.Slot, SPI: spi})
}

// RequireSealed has q take no others than sealed packets any more: it was sent
// one, or its program has agreed on keys before there was any packet. What has
// come in clear, and waits for packets before it, anyone may have made up: it
// goes.
func (q *QP) RequireSealed() {
	q.security = SecuritySealed
	q.core.Halves().DiscardHeld()
}

// spi returns with which security association packets of q leave, 0 in clear.
func (q *QP) spi() uint32 {
	if q.security == SecurityClear || q.path == nil {
		return 0
	}
	return q.path.SPI
}

// fromPeer reports whether d comes the way that packets of the peer come: from
// its port, and sealed for q, or in clear where that may be.
func (q *QP) fromPeer(d *transport.RxPacket) bool {
	return q.fromPeerPort(d) && q.takes(d.SPI)
}

// takes reports whether q takes what came with an SPI, 0 in clear.
func (q *QP) takes(spi uint32) bool {
	if spi == 0 {
		return q.security != SecuritySealed
	}
	return q.security != SecurityClear && rocev2.QPN(spi)&rocev2.QPNMask == q.qpn
}
