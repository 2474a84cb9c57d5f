package engine

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// How an engine drives a protocol machine.

// limit bounds what one poll writes.
type limit struct {
	packets  int
	bytes    int  // of requests, as the window counts them
	delayAck bool // a lone acknowledgement may wait
}

// polled is what one poll wrote.
type polled struct {
	packets    int
	bytes      int  // of requests, as the window counts them
	full       bool // the writer takes no more
	blocked    bool // nothing more goes for lack of bytes
	ackDelayed bool // an acknowledgement waits
}

// poll has the protocol machine write packets to out. It ends at the limit,
// when out is full, or when nothing more is to be sent now.
func (q *QP) poll(now clock.Time, l limit, out qp.PacketWriter) (p polled) {
	q.core.Allow(l.bytes)
	q.core.DelayAcks(l.delayAck)
	for p.packets < l.packets {
		room := out.Room()
		if room == nil {
			p.full = true
			break
		}
		if n := q.core.PollBurst(now, l.packets-p.packets, out); n > 0 {
			p.packets += n
			continue
		}
		n := q.core.PollTransmit(now, room)
		if n == 0 {
			p.blocked, p.ackDelayed = q.core.Allowance() <= 0, q.core.AckDelayed()
			break
		}
		out.Commit(n)
		p.packets++
	}
	p.bytes = l.bytes - q.core.Allowance()
	return p
}

// The ECN field of the traffic class, and Congestion Experienced (RFC 3168).
const (
	ecnMask = 3
	ecnCE   = 3
)

// handle gives the protocol machine a packet.
func (q *QP) handle(now clock.Time, d *transport.RxPacket, p *rocev2.Packet) qp.Drop {
	if d.TrafficClass&ecnMask == ecnCE {
		return q.core.HandleMarked(now, d.Src, p)
	}
	return q.core.HandlePacket(now, d.Src, p)
}

// deadline returns when the machine's timer runs out, and whether there is one.
func (q *QP) deadline() (clock.Time, bool) { return q.core.PollTimeout() }

func (q *QP) postSend(wr *ib.SendWR) error { return q.core.PostSend(0, wr) }
func (q *QP) postRecv(wr *ib.RecvWR) error { return q.core.PostRecv(0, wr) }

// reorderPool is memory for packets behind gaps.
type reorderPool = qp.Store

func newReorderPool() *reorderPool { return qp.NewStore(reorderPackets) }

// setReorder has the machine keep packets behind gaps in p, or none if that is
// nil.
func (q *QP) setReorder(p *reorderPool) { q.core.KeepPackets(p) }

// kept returns how many packets were kept behind gaps so far.
func (q *QP) kept() uint64 { return q.core.Stats().Kept }
