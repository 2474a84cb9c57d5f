package engine

import (
	"encoding/binary"
	"net/netip"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// The middle of a message may be received where it belongs. A link that is
// about to receive asks Place, and has then the payloads written there before
// it knows more than the first header. What turns out to be something else it
// takes out of there, and hands over as an ordinary packet: as the message is
// not complete, nothing is lost. The rest are runs, which Receive takes first.

// placements is how many queue pairs can have packets placed between two
// batches.
const placements = 4

// placing is what was placed and not received yet.
type placing struct {
	n  int
	of [placements]placed
}

type placed struct {
	q       *QP
	packets int
}

// find returns the entry of q, one to be used next if there is none, nil if
// there is no room.
func (p *placing) find(q *QP) *placed {
	for i := range p.n {
		if p.of[i].q == q {
			return &p.of[i]
		}
	}
	if p.n == placements {
		return nil
	}
	p.of[p.n] = placed{q: q}
	return &p.of[p.n]
}

// add notes n packets more for an entry of find.
func (p *placing) add(e *placed, n int) {
	if p.n < placements && e == &p.of[p.n] {
		p.n++
	}
	e.packets += n
}

// Place says where the payloads of packets from src go that are about to be
// received, see transport.Placer. There are up to n packets of size bytes of
// payload; the first has the header h. The view is pinned unless there is
// nothing. Its memory may be used until something else happens to the engine,
// or the pin is dropped.
func Place(e *Engine, src netip.AddrPort, h *[rocev2.BTHLen]byte, size, n int) (memreg.View, []byte) {
	const padAndVersion = 0x3f
	if h[1]&padAndVersion != 0 {
		return memreg.View{}, nil
	}
	q := e.table.get(rocev2.QPN(binary.BigEndian.Uint32(h[4:])) & rocev2.QPNMask)
	if q == nil || !q.portVerified || !q.wide || q.peerPort != 0 && q.peerPort != src.Port() {
		return memreg.View{}, nil
	}
	p := e.placing.find(q)
	if p == nil {
		return memreg.View{}, nil
	}
	psn := rocev2.PSN(binary.BigEndian.Uint32(h[8:])) & rocev2.PSNMask
	v, b := qp.Place(q.core, src.Addr(), rocev2.Opcode(h[0]), psn, size, p.packets)
	if n = min(n, len(b)/size); n == 0 {
		v.Release()
		return memreg.View{}, nil
	}
	e.placing.add(p, n)
	return v, b[: n*size : n*size]
}

// ReceivePlaced handles the runs of a batch whose payloads lie where Place has
// said, before Receive handles its packets. What they call for goes with the
// next Fill.
func ReceivePlaced(e *Engine, now clock.Time, runs []transport.PlacedRun) (r Received) {
	e.placing.n = 0
	for i := range runs {
		receiveRun(e, now, &r, &runs[i])
	}
	e.packet.Payload = nil // nothing keeps the program's memory
	return r
}

// receiveRun handles a run. The queue pair is not bound to be in the state
// that it was in when it was asked: the program may have changed it. So it is
// asked again. Unless the answer is the same the run is dropped, as if lost,
// without touching its memory, which nothing pins any more. A packet in the
// middle of a message ends no key, so nothing waits for the pin that is held
// here.
func receiveRun(e *Engine, now clock.Time, r *Received, run *transport.PlacedRun) {
	d, size := run.First, len(run.Payload)/run.N
	h := (*[rocev2.BTHLen]byte)(d.Data)
	r.Packets += run.N
	e.packet.ParseBTH(h, nil)
	first := e.packet.BTH.PSN
	q := e.table.get(e.packet.BTH.DestQPN)
	if q == nil {
		e.counters.Device[DropUnknownQP] += uint64(run.N)
		return
	}
	if placedAsRun(e, now, r, q, run) {
		return
	}
	v, b := qp.Place(q.core, d.Src, e.packet.BTH.Opcode, first, size, 0)
	defer v.Release()
	if !startsWith(b, run.Payload) {
		e.counters.QP[qp.DropState] += uint64(run.N)
		return
	}
	for i := range run.N {
		e.packet.ParseBTH(h, run.Payload[i*size:(i+1)*size])
		e.packet.BTH.PSN = first.Add(i)
		if !e.deliver(now, r, &d, q) {
			e.counters.QP[qp.DropOutOfOrder] += uint64(run.N - i - 1)
			return
		}
	}
}
