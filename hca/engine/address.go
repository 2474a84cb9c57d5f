package engine

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// setAddress applies the address vector of q.
func (e *Engine) setAddress(q *QP) {
	e.finals.receipts.forget(q.QPN())
	av := q.core.Attr().AV
	if class := e.cfg.class(av.TrafficClass); class != q.class {
		e.turns.remove(q)
		q.class = class
	}
	if !q.core.Reliable() { // what is in flight is not known
		q.path = e.paths.find(&av)
		q.local = e.isLocal(q)
		q.loops = q.local || !q.core.Connected() && e.loop.addr.IsValid()
		e.shareNotices(q)
		return
	}
	e.peers.connect(q, av.DGID.Unmap().WithZone(""))
	q.core.SharePauses(&q.peer.pauses)
	e.shareNotices(q)
	q.path = q.peer.path(e.cfg.Addr, transport.Path{
		Dst:          av.DGID,
		TrafficClass: av.TrafficClass,
		HopLimit:     av.HopLimit,
		FlowLabel:    flowLabel(&av),
		SrcPort:      av.SrcPort,
		Slot:         ib.SlotOf(q.core.Attr().DestQPN, av.Slots),
		SPI:          q.spi(),
	})
	q.local = e.isLocal(q)
	q.loops = q.local
	e.setPeer(q, av.Native || q.local)
}

// isLocal reports whether the peer of q is a queue pair of this device that
// packets reach inside of it.
func (e *Engine) isLocal(q *QP) bool {
	return q.path.Dst == e.loop.addr && (!q.core.Connected() || e.cfg.inDevice(q.core.Attr().DestQPN))
}

// shareNotices has q, whose peer was just set, keep to the gate of its scope.
func (e *Engine) shareNotices(q *QP) {
	switch {
	case e.cfg.NotifyScope == qp.NotifyPerPort:
		q.core.Notices().Share(&e.notices)
	case e.cfg.NotifyScope == qp.NotifyPerPeer && q.peer != nil:
		q.core.Notices().Share(&q.peer.notices)
	}
}

// setPeer notes a new peer. Whether it is native the program must say:
// no packet can show it.
func (e *Engine) setPeer(q *QP, native bool) {
	q.wide = false
	if !native { // after another, or a controller of the program's has no bounds yet
		q.core.SetWindow(e.cfg.foreignWindow())
	}
	if q.native {
		q.core.SetReorder(nil)
	}
	q.native, q.portVerified, q.peerPort = native, false, 0
	if native {
		if e.reorder == nil {
			e.reorder = newReorder(&e.cfg)
		}
		q.widen(&e.cfg)
		q.core.SetReorder(e.reorder)
	}
	if q.local {
		q.portVerified, q.peerPort = true, e.cfg.Port
	}
}
