package responder

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// bufferRequest takes a request behind a gap: the expected one gets a sequence
// NAK, once (IBTA 9.7.5.1), and the request goes to the reorder buffer if the
// peer is native.
func (r *Responder) bufferRequest(now clock.Time, p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	psn := p.BTH.PSN
	d := conn.DropOutOfOrder
	if r.c.Pool != nil && psn.Ahead(r.epsn) > uint32(r.c.Pool.Reach) {
		return d // not in flight
	}
	if r.nakForGap || !r.nakSent {
		psns := uint32(1)
		if info.Operation == rocev2.OpReadRequest {
			psns = r.c.PSNs(p.RETH.Length)
		}
		gap := r.reorder.Len() == 0 || psn.After(r.reorder.End())
		late := !gap && psn.Before(r.reorder.End())
		if d = r.c.Buffer(&r.reorder, now, p, psns, r.epsn, d); d == conn.DropNone {
			if late { // what comes twice is not kept again, and says nothing
				noteLate(r, p)
			}
			noteKept(r, gap && inOrder(r) || p.BTH.AckReq)
			if r.reordered > 0 {
				nakReordered(r, now, psn)
				return d
			}
		}
	}
	if !r.nakSent || r.nakForGap && !psn.After(r.firstGap) {
		r.nakGap(now, psn)
	} else if r.firstGap == r.epsn {
		r.firstGap = psn
	}
	return d
}

// executeBuffered goes on with the reorder buffer, as far as it follows without
// a gap. The next gap gets its NAK at once: the peer went back no further than
// to the last one.
func (r *Responder) executeBuffered(now clock.Time) {
	executed := false
	for r.reorder.Len() > 0 && !r.out.full() {
		d := r.reorder.First().Sub(r.epsn)
		if d > 0 {
			break
		}
		if d == 0 { // else sent again and executed meanwhile
			p := r.reorder.Lowest()
			info, _ := p.BTH.Opcode.Info()
			if r.executeRequest(p, info) == conn.DropRdAtomic {
				r.c.Stats.Result(conn.DropRdAtomic)
			}
			executed = true
			if r.c.Failed() {
				return
			}
		}
		r.reorder.Pop()
	}
	if r.nakSent && !r.nakForGap {
		r.reorder.Discard() // the peer sends everything again
	}
	r.reorder.Trim()
	if executed && r.reorder.Len() > 0 {
		noteKept(r, r.reordered == 0)
	}
	if executed && r.reorder.Len() > 0 && !r.nakSent && !r.out.full() && r.reordered == 0 {
		r.nakGap(now, r.reorder.First())
	}
}

// nakGap asks for the expected packet, because psn came. A native peer is asked
// twice: it sends so little again that nothing shows the loss of the NAK, and
// takes both for one. Without progress the number of NAKs in a while is
// bounded, whatever comes.
func (r *Responder) nakGap(now clock.Time, psn rocev2.PSN) {
	if r.waitsForPage() || !r.naks.allow(now, r.epsn) {
		return
	}
	r.nakSent, r.nakForGap, r.firstGap = true, true, psn
	if r.out.nak(rocev2.NAKSequence, r.epsn, r.msn) && r.reorder.Len() > 0 && !r.out.full() {
		r.out.push(*r.out.at(r.out.tail - 1))
	}
}

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

// noteLate takes note of a packet that came into a gap. If it does not ask for
// an acknowledgement the peer has not sent it again, it was late. Only READs go
// twice without that (package requester, twins).
func noteLate(r *Responder, p *rocev2.Packet) {
	if !p.BTH.AckReq && p.BTH.Opcode != rocev2.RCReadRequest {
		r.reordered = min(r.reordered+lateGaps, mostLateGaps)
	}
}

// inOrder takes note of another gap, and reports whether the path keeps the
// order.
func inOrder(r *Responder) bool {
	if r.reordered > 0 {
		r.reordered--
	}
	return r.reordered == 0
}

// nakReordered asks for the expected packet, where what has overtaken it does
// not say that it is lost: once, when the peer is told what is kept.
func nakReordered(r *Responder, now clock.Time, psn rocev2.PSN) {
	if r.tellKept && !r.nakSent {
		r.nakGap(now, psn)
	}
}

// noteKept takes note that a packet was kept behind a gap, or that the gap is
// another one. The peer is told at once if another gap has shown, or if it has
// asked for an acknowledgement.
func noteKept(r *Responder, tell bool) {
	if r.kept++; tell || r.kept >= r.reorder.Every(r.epsn) {
		r.tellKept = true
	}
}

// Pressing reports whether an answer other than a lone acknowledgement waits to
// be sent.
func (r *Responder) Pressing() bool { return r.tellKept || r.answerer.Pressing() }

// Yields reports whether the answers to READs wait for requests to have their
// turn at the rate of both. Resume ends that.
func Yields(r *Responder) bool { return r.yields }

// Resume has the answers to READs go on.
func Resume(r *Responder) { r.yields = false }

// Poll writes answers until out takes no more or none waits. With delay a lone
// acknowledgement waits on. A selective acknowledgement comes before the
// sequence NAK for the same gap, and behind all other answers: they are older,
// and so are their MSNs.
func (r *Responder) Poll(now clock.Time, delay bool, out *conn.Output) {
	for {
		if r.tellKept && r.out.onlyNAK(r.epsn, r.msn) && !pollSelectiveAck(r, out) {
			return
		}
		if r.out.empty() || r.answerer.AckDelayed(delay && !r.tellKept) {
			return
		}
		buf := out.Room()
		if buf == nil || !r.pollNext(now, buf, out) {
			return
		}
	}
}

// pollSelectiveAck writes which packets are kept, and up to how far some will
// be. It returns false if there is no room.
func pollSelectiveAck(r *Responder, out *conn.Output) bool {
	if r.reorder.Len() == 0 || r.c.Failed() {
		r.tellKept, r.kept = false, 0
		return true
	}
	buf := out.Room()
	if buf == nil {
		return false
	}
	r.tellKept, r.kept = false, 0
	r.acknowledges(r.epsn.Add(-1))
	h := r.c.BTH(0, r.epsn)
	h.Opcode, h.Solicited = rocev2.SelectiveAck, true
	room := rocev2.CreditCode(r.c.Pool.Share(r.c.MTU))
	a := rocev2.AETH{Syndrome: rocev2.SyndromeACK(room), MSN: r.msn}
	b := a.AppendTo(h.AppendTo(buf[:0]))
	out.Commit(len(r.reorder.AppendKept(b, r.epsn, r.c.MTU)))
	r.c.Stats.AcksSent++
	return true
}

// onlyNAK reports whether nothing waits but a sequence NAK for what is expected
// now.
func (r *responses) onlyNAK(expected, msn rocev2.PSN) bool {
	for i := r.head; i != r.tail; i++ {
		if e := r.at(i); e.kind != responseNAK || e.syndrome != rocev2.NAKSequence || e.psn != expected || e.msn != msn {
			return false
		}
	}
	return true
}

// nakLimit bounds the sequence NAKs for one expected PSN: maxGapNAKs in each
// nakPeriod. A peer takes no more of them for signs that the packet was lost
// again.
type nakLimit struct {
	since clock.Time
	psn   rocev2.PSN
	n     uint8
}

const (
	maxGapNAKs = 5
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
