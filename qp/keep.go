package qp

import "github.com/gosoftroce/rocev2/rocev2"

// Store is memory for packets that arrived behind a gap, shared by queue pairs that are not used concurrently. It takes
// memory as it is needed, up to its limit, and keeps it for the next loss.
type Store struct {
	free *keptPacket
	left int // packets that may still be allocated
}

// NewStore makes a store for so many packets, of 4.5 KiB each at the most.
func NewStore(packets int) *Store { return &Store{left: packets} }

// keptPacket is a request packet behind a gap.
type keptPacket struct {
	next   *keptPacket
	packet rocev2.Packet
	buf    [4096]byte
}

// take returns room for a packet, nil if there is none.
func (s *Store) take() *keptPacket {
	k := s.free
	switch {
	case k != nil:
		s.free = k.next
	case s.left > 0:
		s.left--
		k = new(keptPacket)
	}
	return k
}

func (s *Store) put(k *keptPacket) {
	k.next = s.free
	s.free = k
}

// kept is what a responder keeps: packets behind the expected one, in the order of their PSNs.
type kept struct {
	first, last *keptPacket
	n           int
}

// Bounds of what one queue pair keeps: packets, and how far ahead of the expected one.
const (
	maxKept      = 1024
	maxKeptAhead = 1 << 13
)

// KeepPackets says that the peer is of our own kind and keeps what arrives behind a gap. So does this queue pair from
// now on, in s, as long as there is room, and executes it in order when the gap is closed: to the peer that is as if the
// network had delayed the packets. And after a loss it does not send everything again that was in flight, but a few
// packets from the missing one on, and more if they do not help; so a peer that keeps nothing, or not everything, costs
// time only.
func (q *QP) KeepPackets(s *Store) {
	q.discardKept()
	q.store = s
}

// keep stores a packet behind the gap at the expected PSN, and reports whether it did. One that is there already is not
// stored again.
func (q *QP) keep(l *kept, p *rocev2.Packet, expected rocev2.PSN) bool {
	if q.store == nil || q.state == StateErr || l.n >= maxKept || len(p.Payload) > q.mtu ||
		ahead(p.BTH.PSN, expected) > maxKeptAhead {
		return false
	}
	at := &l.first // nearly always the packet is the last one
	if l.last != nil && p.BTH.PSN.After(l.last.packet.BTH.PSN) {
		at = &l.last.next
	}
	for *at != nil && (*at).packet.BTH.PSN.Before(p.BTH.PSN) {
		at = &(*at).next
	}
	if *at != nil && (*at).packet.BTH.PSN == p.BTH.PSN {
		return false
	}
	k := q.store.take()
	if k == nil {
		return false
	}
	k.packet = *p
	k.packet.Payload = k.buf[:copy(k.buf[:], p.Payload)]
	k.next = *at
	*at = k
	if k.next == nil {
		l.last = k
	}
	l.n++
	q.stats.Kept++
	return true
}

// pop takes the first packet off the list.
func (l *kept) pop() *keptPacket {
	k := l.first
	l.first = k.next
	if l.first == nil {
		l.last = nil
	}
	l.n--
	return k
}

// discard gives the packets back.
func (l *kept) discard(s *Store) {
	for l.first != nil {
		s.put(l.pop())
	}
}

func (q *QP) discardKept() {
	q.req.kept.discard(q.store)
	q.resp.kept.discard(q.store)
}

// executeKept goes on with what was kept, as far as it follows without a gap. The next gap gets its NAK at once: the
// peer went back no further than to the last one.
func (q *QP) executeKept() {
	r := &q.resp
	for r.kept.first != nil && !r.out.full() {
		p := &r.kept.first.packet
		d := p.BTH.PSN.Sub(r.epsn)
		if d > 0 {
			break
		}
		if d == 0 { // else sent again and executed meanwhile
			info, _ := p.BTH.Opcode.Info()
			q.executeRequest(p, info)
		}
		if q.state == StateErr || r.latch && !r.rearm {
			r.kept.discard(q.store) // the peer sends everything again, or nothing any more
			return
		}
		q.store.put(r.kept.pop())
	}
	if r.kept.first != nil && !r.latch && !r.out.full() {
		q.nakGap(r.kept.first.packet.BTH.PSN)
	}
}

// nakGap asks for the expected packet, because psn came. One of our own kind is asked twice: it sends so little again
// that nothing shows the loss of the NAK, and takes both for one.
func (q *QP) nakGap(psn rocev2.PSN) {
	r := &q.resp
	r.latch, r.rearm, r.firstGap = true, true, psn
	if r.out.nak(rocev2.NAKSequence, r.epsn, r.msn) && r.kept.first != nil && !r.out.full() {
		r.out.push(*r.out.at(r.out.tail - 1))
	}
}
