package qp

import (
	"bytes"
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// KeepPackets says that the peer is of our own kind and keeps what arrives
// behind a gap. So does this queue pair from now on, in s, as long as there is
// room, and executes it in order when the gap is closed: to the peer that is as
// if the network had delayed the packets. And after a loss it does not send
// everything again that was in flight, but a few packets from the missing one
// on, and more if they do not help; so a peer that keeps nothing, or not
// everything, costs time only.
//
// A packet that is kept takes effect without the packets before it having shown
// that its PSN is right; so a PSN is up to 128 times easier to guess than
// without. The program must know who the peer is.
func (q *QP) KeepPackets(s *Store) {
	q.discardKept()
	q.store = s
}

// Held returns the number of packets that are kept behind gaps now.
func (q *QP) Held() int { return q.req.kept.len() + q.resp.kept.len() }

// keepAge is how long a packet is kept at the most: about the usual local ACK
// timeout, after which a peer sends everything again. Where the round trip is
// known to be long, it is keepTrips of it, up to keepAgeMax.
const (
	keepAge    = 64 * time.Millisecond
	keepAgeMax = 512 * time.Millisecond
	keepTrips  = 4
)

func (q *QP) keepAge() time.Duration {
	if r := &q.req.rtt; r.known {
		return min(max(keepAge, keepTrips*r.smooth), keepAgeMax)
	}
	return keepAge
}

// kept is the packets of one direction behind a gap. It takes memory when there
// are some.
type kept struct{ *reorderBuffer }

func (l kept) len() int {
	if l.reorderBuffer == nil {
		return 0
	}
	return l.n
}

// lowest returns the packet with the lowest PSN, nil if there is none.
func (l kept) lowest() *keptPacket {
	if l.reorderBuffer == nil {
		return nil
	}
	return l.find(l.first)
}

// trim gives the buffer back if it is empty.
func (l *kept) trim() {
	if b := l.reorderBuffer; b != nil && b.n == 0 {
		b.store.release(b)
		l.reorderBuffer = nil
	}
}

// discard gives everything back.
func (l *kept) discard() {
	if b := l.reorderBuffer; b != nil {
		for b.n > 0 {
			b.remove(b.newest)
		}
		l.trim()
	}
}

func (q *QP) discardKept() {
	q.req.kept.discard()
	q.resp.kept.discard()
}

// keep stores a packet behind the gap at the expected PSN; psns is how many it
// takes. The result is DropNone, or d if it is not stored, or DropConflict.
func (q *QP) keep(now clock.Time, l *kept, p *rocev2.Packet, psns uint32, expected rocev2.PSN, d Drop) Drop {
	if q.store == nil || q.state == ib.StateErr || len(p.Payload) > q.mtu {
		return d
	}
	if l.reorderBuffer != nil {
		l.discardBefore(expected)
		l.trim()
	}
	psn := p.BTH.PSN
	distance := ahead(psn, expected)
	limit := uint32(reorderGap)
	if l.reorderBuffer != nil {
		limit = min(ahead(l.end, expected)-1+reorderGap, MaxReorder)
		if distance <= limit {
			if k := l.find(psn); k != nil {
				return q.keptTwice(l, k, p, d)
			}
		}
	}
	if distance > limit {
		return d
	}
	if l.reorderBuffer == nil {
		l.reorderBuffer = q.store.buffer()
	}
	k := q.store.take(l.reorderBuffer)
	if k == nil {
		l.trim()
		return d
	}
	k.at, k.psns, k.packet = now, min(psns, MaxReorder), *p
	k.packet.Payload = k.buf[:copy(k.buf[:], p.Payload)]
	l.insert(k)
	q.stats.Kept++
	return DropNone
}

// keptTwice takes a packet for whose PSN one is kept. If it says something
// else, one of them is forged and nobody knows which: both go, and the peer
// sends the right one again. A peer's program that changed its data meanwhile
// looks the same, and costs no more.
func (q *QP) keptTwice(l *kept, k *keptPacket, p *rocev2.Packet, d Drop) Drop {
	a, b := &k.packet, p
	if a.BTH.Opcode == rocev2.RCAcknowledge && b.BTH.Opcode == rocev2.RCAcknowledge {
		a.BTH, a.AETH = b.BTH, b.AETH // as the NAK for a PSN and then its acknowledgement
		return d
	}
	if sameMeaning(a, b) {
		return d
	}
	l.remove(k)
	l.bound()
	l.trim()
	q.stats.KeptLost++
	return DropConflict
}

// sameMeaning reports whether two packets of a PSN are the same but for what
// may change when it is sent again: AckReq, marks, AETH, and where the answer
// to a READ begins and ends.
func sameMeaning(a, b *rocev2.Packet) bool {
	x, _ := a.BTH.Opcode.Info()
	y, _ := b.BTH.Opcode.Info()
	if x.Operation == rocev2.OpReadResponse {
		return y.Operation == rocev2.OpReadResponse && bytes.Equal(a.Payload, b.Payload)
	}
	return a.BTH.Opcode == b.BTH.Opcode && a.BTH.Solicited == b.BTH.Solicited && a.RETH == b.RETH &&
		a.AtomicETH == b.AtomicETH && a.AtomicAck == b.AtomicAck && a.Imm == b.Imm && a.IETH == b.IETH &&
		bytes.Equal(a.Payload, b.Payload)
}

// keptDeadline returns when the oldest kept packet is too old.
func (q *QP) keptDeadline() (at clock.Time, ok bool) {
	for _, l := range [...]kept{q.req.kept, q.resp.kept} {
		if l.reorderBuffer == nil {
			continue
		}
		if t := l.oldest.at.Add(q.keepAge()); !ok || t < at {
			at, ok = t, true
		}
	}
	return at, ok
}

// expireKept gives back what is too old.
func (q *QP) expireKept(now clock.Time) {
	limit := now.Add(-q.keepAge())
	for _, l := range [...]*kept{&q.req.kept, &q.resp.kept} {
		if l.reorderBuffer != nil {
			q.stats.KeptLost += uint64(l.discardUntil(limit))
			l.trim()
		}
	}
}

// keepRequest takes a request behind a gap.
func (q *QP) keepRequest(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) Drop {
	r := &q.resp
	psn := p.BTH.PSN
	d := DropOutOfOrder
	if q.store != nil && ahead(psn, r.epsn) > MaxReorder {
		return d // not in flight
	}
	if r.rearm || !r.latch {
		psns := uint32(1)
		if info.Operation == rocev2.OpReadRequest {
			psns = q.psnsFor(p.RETH.Length)
		}
		d = q.keep(now, &r.kept, p, psns, r.epsn, d)
	}
	if !r.latch || r.rearm && !psn.After(r.firstGap) {
		q.nakGap(now, psn)
	} else if r.firstGap == r.epsn {
		r.firstGap = psn
	}
	return d
}

// executeKept goes on with what was kept, as far as it follows without a gap.
// The next gap gets its NAK at once: the peer went back no further than to the
// last one.
func (q *QP) executeKept(now clock.Time) {
	r := &q.resp
	executed := false
	for r.kept.len() > 0 && !r.out.full() {
		d := r.kept.first.Sub(r.epsn)
		if d > 0 {
			break
		}
		if d == 0 { // else sent again and executed meanwhile
			p := &r.kept.lowest().packet
			info, _ := p.BTH.Opcode.Info()
			if q.executeRequest(p, info) == DropRdAtomic {
				q.stats.Drops[DropRdAtomic]++
			}
			executed = true
			if q.state == ib.StateErr {
				return
			}
		}
		r.kept.pop()
	}
	if r.latch && !r.rearm {
		r.kept.discard() // the peer sends everything again
	}
	r.kept.trim()
	if executed && r.kept.len() > 0 && !r.latch && !r.out.full() {
		q.nakGap(now, r.kept.first)
	}
}

// nakGap asks for the expected packet, because psn came. One of our own kind is
// asked twice: it sends so little again that nothing shows the loss of the NAK,
// and takes both for one. Without progress the number of NAKs in a while is
// bounded, whatever comes.
func (q *QP) nakGap(now clock.Time, psn rocev2.PSN) {
	r := &q.resp
	if q.waitsForPage() || !r.naks.allow(now, r.epsn) {
		return
	}
	r.latch, r.rearm, r.firstGap = true, true, psn
	if r.out.nak(rocev2.NAKSequence, r.epsn, r.msn) && r.kept.len() > 0 && !r.out.full() {
		r.out.push(*r.out.at(r.out.tail - 1))
	}
}

// nakLimit bounds the sequence NAKs for one expected PSN: maxGapNAKs in each
// nakPeriod. A peer takes no more of them for signs that the packet was lost
// again (maxRestarts).
type nakLimit struct {
	since clock.Time
	psn   rocev2.PSN
	n     uint8
}

const (
	maxGapNAKs = maxRestarts + 1
	nakPeriod  = clock.Time(time.Millisecond)
)

func (l *nakLimit) allow(now clock.Time, psn rocev2.PSN) bool {
	if l.n == 0 || l.psn != psn || now-l.since >= nakPeriod {
		*l = nakLimit{since: now, psn: psn}
	}
	if l.n == maxGapNAKs {
		return false
	}
	l.n++
	return true
}
