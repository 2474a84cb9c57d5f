package responder

import (
	"time"

	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// gap is what is known of a gap in the requests: what came after it, and what
// the peer was told. It sends nothing itself.
type gap struct {
	c       *conn.Conn
	reorder queue.Reorder
	nak     nakState
	first   rocev2.PSN // the first that came after the gap since the NAK; the expected one: none

	tell      bool  // a selective acknowledgement is to be sent
	kept      uint8 // packets that were kept since the last one
	reordered uint8 // for how many more gaps the path is taken for one that does not keep the order
}

// nakState is what was asked of the peer. It bounds the sequence NAKs for one
// expected PSN: maxGapNAKs in each nakPeriod. A peer takes no more of them for
// signs that the packet was lost again.
type nakState struct {
	since  clock.Time
	psn    rocev2.PSN
	n      uint8
	sent   bool // a NAK was sent for the expected packet: silence until that comes
	forGap bool // it was for a gap, before gap.first: when that or an earlier packet comes, the expected one was sent again and lost again
}

const (
	maxGapNAKs = 5
	nakPeriod  = clock.Time(time.Millisecond)
)

// A path that does not keep the order makes a gap of nearly every packet. Then
// the peer is told of them less often, as it waits to see whether more packets
// overtake what is missing.
const (
	// lateGaps is for how many gaps that is so after a packet that was
	// late.
	lateGaps = 8
	// mostLateGaps is the most of them.
	mostLateGaps = 64
)

// take takes a request of psns PSNs after the gap at the expected one. It goes
// to the reorder buffer if the peer is native. The expected one gets a sequence
// NAK, once (IBTA 9.7.5.1): ask is set if that is to be sent now.
func (g *gap) take(now clock.Time, p *rocev2.Packet, psns uint32, expected rocev2.PSN) (d conn.Drop, ask bool) {
	psn := p.BTH.PSN
	d = conn.DropOutOfOrder
	if g.c.Pool != nil && psn.Ahead(expected) > uint32(g.c.Pool.Reach) {
		return d, false // not in flight
	}
	if g.nak.forGap || !g.nak.sent {
		another := g.reorder.Len() == 0 || psn.After(g.reorder.End())
		late := !another && psn.Before(g.reorder.End())
		if d = g.c.Buffer(&g.reorder, now, p, psns, expected, d); d == conn.DropNone {
			if late { // what comes twice is not kept again, and says nothing
				g.late(p)
			}
			g.count(expected, another && g.inOrder() || p.BTH.AckReq)
			if g.reordered > 0 {
				// What has overtaken it does not say that it is
				// lost: it is asked for once, when the peer is
				// told what is kept.
				return d, g.tell && !g.nak.sent
			}
		}
	}
	if !g.nak.sent || g.nak.forGap && !psn.After(g.first) {
		return d, true
	}
	if g.first == expected {
		g.first = psn
	}
	return d, false
}

// count counts a packet that was kept after a gap, or another gap. The peer is
// told at once if another gap has shown, or if it has asked for an
// acknowledgement.
func (g *gap) count(expected rocev2.PSN, tell bool) {
	if g.kept++; tell || g.kept >= g.reorder.Every(expected) {
		g.tell = true
	}
}

// late counts a packet that came into a gap. If it does not ask for an
// acknowledgement the peer has not sent it again, it was late. Only READs go
// twice without that (package requester, twins).
func (g *gap) late(p *rocev2.Packet) {
	if !p.BTH.AckReq && p.BTH.Opcode != rocev2.RCReadRequest {
		g.reordered = min(g.reordered+lateGaps, mostLateGaps)
	}
}

// inOrder counts another gap, and reports whether the path keeps the order.
func (g *gap) inOrder() bool {
	if g.reordered > 0 {
		g.reordered--
	}
	return g.reordered == 0
}

// asks reports whether another sequence NAK for the expected packet may be
// sent, because psn came, and counts it. Without progress their number in a
// while is bounded, whatever comes.
func (g *gap) asks(now clock.Time, expected, psn rocev2.PSN) bool {
	k := &g.nak
	if k.n == 0 || k.psn != expected || now-k.since >= nakPeriod {
		k.since, k.psn, k.n = now, expected, 0
	}
	if k.n == maxGapNAKs {
		return false
	}
	k.n++
	g.asked(psn)
	return true
}

// asked says that the expected packet is asked for because first came.
func (g *gap) asked(first rocev2.PSN) { g.nak.sent, g.nak.forGap, g.first = true, true, first }

// repeats says that the expected packet is asked for once more: nothing came
// after it since.
func (g *gap) repeats(expected rocev2.PSN) { g.first = expected }

// silence says that the peer will send everything again later, without being
// asked for it.
func (g *gap) silence() { g.nak.sent, g.nak.forGap = true, false }

// close says that the expected packet has come.
func (g *gap) close() { g.nak.sent = false }

// holds reports whether packets are kept.
func (g *gap) holds() bool { return g.reorder.Len() > 0 }

// next returns the expected packet, if it is kept. Without it there may be more
// all the same: one before it, which was sent again and executed meanwhile.
func (g *gap) next(expected rocev2.PSN) (p *rocev2.Packet, more bool) {
	if g.reorder.Len() == 0 || g.reorder.First().After(expected) {
		return nil, false
	}
	if g.reorder.First() == expected {
		p = g.reorder.Lowest()
	}
	return p, true
}

// pop gives back the first packet that is kept.
func (g *gap) pop() { g.reorder.Pop() }

// settle goes on after packets that were kept were executed, or not. It reports
// whether the next gap is to be asked for, and what came after it.
func (g *gap) settle(executed bool, expected rocev2.PSN) (first rocev2.PSN, ask bool) {
	if g.nak.sent && !g.nak.forGap {
		g.reorder.Discard() // the peer sends everything again
	}
	g.reorder.Trim()
	if !executed || g.reorder.Len() == 0 {
		return 0, false
	}
	g.count(expected, g.reordered == 0)
	return g.reorder.First(), !g.nak.sent && g.reordered == 0
}

// poll writes which packets are kept, and up to how far some will be: a
// selective acknowledgement of what comes before the expected packet. It
// reports whether it did, and returns false for ok if there is no room.
func (g *gap) poll(out *conn.Output, expected, msn rocev2.PSN) (told, ok bool) {
	if g.reorder.Len() == 0 || g.c.Failed() {
		g.tell, g.kept = false, 0
		return false, true
	}
	buf := out.Room()
	if buf == nil {
		return false, false
	}
	g.tell, g.kept = false, 0
	h := g.c.BTH(0, expected)
	h.Opcode, h.Solicited = rocev2.SelectiveAck, true
	room := rocev2.CreditCode(g.c.Pool.Share(g.c.MTU))
	a := rocev2.AETH{Syndrome: rocev2.SyndromeACK(room), MSN: msn}
	b := a.AppendTo(h.AppendTo(buf[:0]))
	out.Commit(len(g.reorder.AppendKept(b, expected, g.c.MTU)), nil, conn.OrdinaryPacket)
	g.c.Stats.AcksSent++
	return true, true
}

// expire gives back what is kept for too long.
func (g *gap) expire(now clock.Time) { g.c.Expire(&g.reorder, now, queue.RequestAge(g.c.SRTT)) }

// deadline returns when expire has something to do, if packets are kept.
func (g *gap) deadline() clock.Time {
	at, _ := g.reorder.Deadline(queue.RequestAge(g.c.SRTT))
	return at
}

// discard gives back what is kept.
func (g *gap) discard() { g.reorder.Discard() }
