package engine

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// How an engine drives a protocol machine.

// handle gives the protocol machine a packet.
func (q *QP) handle(now clock.Time, d *transport.RxPacket, p *rocev2.Packet) qp.Drop {
	a := qp.Arrival{Packet: p, Src: d.Src, TrafficClass: d.TrafficClass}
	return q.core.HandlePacket(now, &a)
}

// deadline returns when the machine's timer runs out, and whether there is one.
func (q *QP) deadline() (clock.Time, bool) { return q.core.Deadline() }

func (q *QP) postSend(wr *ib.SendWR) error { return q.core.PostSend(wr) }
func (q *QP) postRecv(wr *ib.RecvWR) error { return q.core.PostRecv(wr) }

// reorderPool is memory for packets behind gaps.
type reorderPool = qp.Pool

func newReorderPool() *reorderPool { return qp.NewPool(reorderPackets) }

// setReorder has the machine keep packets behind gaps in p, or none if that is
// nil.
func (q *QP) setReorder(p *reorderPool) { q.core.SetReorder(p) }

// kept returns how many packets were kept behind gaps so far.
func (q *QP) kept() uint64 { return q.core.Stats().Kept }
