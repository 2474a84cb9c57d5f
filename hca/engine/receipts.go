package engine

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// The last acknowledgement of a queue pair may be lost, and its program may
// take the queue pair away at once: it has all that it wanted. The peer then
// asks again, for ever if it is Linux with 7 retries, or fails what was done.
// So the acknowledgement is kept, and answers the SENDs and WRITEs that come
// again. Nothing else is answered: a READ has no data any more.

// receipt is the acknowledgement of a queue pair that has gone.
type receipt struct {
	finalPacket
	qpn         rocev2.QPN
	first, last rocev2.PSN // that it is of
	peer        netip.Addr
	port        uint16 // of the peer, 0: any
	queued      bool   // it is in the next batch
}

// maxReceipts is how many are kept. The oldest one goes first.
const maxReceipts = 1024

// receipts are those of the queue pairs that have gone last.
type receipts struct {
	of   map[rocev2.QPN]*receipt
	ring []*receipt
	next int // the oldest, when the ring is full
}

// keep keeps the receipt of q, which goes, or goes to ERR or RESET.
func (s *receipts) keep(q *QP) {
	if q.local { // nothing is lost on the way
		return
	}
	r := receipt{qpn: q.QPN(), finalPacket: finalPacket{path: q.path, class: q.class}, peer: q.path.Dst, port: q.peerPort}
	if r.n, r.first, r.last = q.core.Halves().Receipt(r.data[:]); r.n == 0 {
		return
	}
	if s.of == nil {
		s.of = map[rocev2.QPN]*receipt{}
	}
	if old := s.of[r.qpn]; old != nil {
		*old = r
		return
	}
	if len(s.ring) < maxReceipts {
		s.ring = append(s.ring, new(receipt))
		s.next = len(s.ring) - 1
	}
	slot := s.ring[s.next]
	s.next = (s.next + 1) % maxReceipts
	delete(s.of, slot.qpn)
	*slot = r
	s.of[r.qpn] = slot
}

// forget ends the receipt of a queue pair that has another peer.
func (s *receipts) forget(n rocev2.QPN) {
	if r := s.of[n]; r != nil {
		r.n = 0
	}
}

// answer answers a request that comes again to a queue pair that has gone, if
// its peer wants to know, and reports whether it does.
func (f *finals) answer(b *rocev2.BTH, d *transport.RxPacket) bool {
	r := f.receipts.of[b.DestQPN]
	if r == nil || r.n == 0 || r.queued || !b.AckReq || d.Src != r.peer || (d.SPI != 0) != (r.path.SPI != 0) || r.port != 0 && r.port != d.SrcPort {
		return false
	}
	info, _ := b.Opcode.Info()
	if info.Role != rocev2.RoleRequest || info.Operation != rocev2.OpSend && info.Operation != rocev2.OpWrite ||
		b.PSN.Before(r.first) || b.PSN.After(r.last) {
		return false
	}
	p := r.finalPacket
	p.receipt = r
	r.queued = true
	f.packets = append(f.packets, p)
	return true
}
