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

// place is Engine.Place.
func (in *receiver) place(src netip.AddrPort, h *[rocev2.BTHLen]byte, size, n int) (memreg.View, []byte) {
	const padAndVersion = 0x3f
	if h[1]&padAndVersion != 0 {
		return memreg.View{}, nil
	}
	q := in.table.get(rocev2.QPN(binary.BigEndian.Uint32(h[4:])) & rocev2.QPNMask)
	if q == nil || !q.portVerified || !q.wide || q.security != SecurityClear || q.peerPort != 0 && q.peerPort != src.Port() {
		return memreg.View{}, nil
	}
	p := in.placing.find(q)
	if p == nil {
		return memreg.View{}, nil
	}
	psn := rocev2.PSN(binary.BigEndian.Uint32(h[8:])) & rocev2.PSNMask
	v, b := q.core.Halves().Place(src.Addr(), rocev2.Opcode(h[0]), psn, size, p.packets)
	if n = min(n, len(b)/size); n == 0 {
		v.Release()
		return memreg.View{}, nil
	}
	in.placing.add(p, n)
	return v, b[: n*size : n*size]
}

// takePlaced handles the runs of a batch that were placed.
func (in *receiver) takePlaced(now clock.Time, r *Ready, runs []transport.PlacedRun) {
	for i := range runs {
		in.receiveRun(now, r, &runs[i])
	}
	in.packet.Payload = nil // nothing keeps the program's memory
}

// receiveRun handles a run. The queue pair is not bound to be in the state
// that it was in when it was asked: the program may have changed it. So it is
// asked again. Unless the answer is the same the run is dropped, as if lost,
// without touching its memory, which nothing pins any more. A packet in the
// middle of a message ends no key, so nothing waits for the pin that is held
// here.
func (in *receiver) receiveRun(now clock.Time, r *Ready, run *transport.PlacedRun) {
	d, size := run.First, len(run.Payload)/run.N
	h := (*[rocev2.BTHLen]byte)(d.Data)
	r.Packets += run.N
	in.packet.ParseBTH(h, nil)
	first := in.packet.BTH.PSN
	q := in.table.get(in.packet.BTH.DestQPN)
	if q == nil {
		in.counters.Device[DropUnknownQP] += uint64(run.N)
		return
	}
	if in.placedAsRun(now, r, q, run) {
		return
	}
	v, b := q.core.Halves().Place(d.Src, in.packet.BTH.Opcode, first, size, 0)
	defer v.Release()
	if !startsWith(b, run.Payload) {
		in.counters.QP[qp.DropState] += uint64(run.N)
		return
	}
	for i := range run.N {
		in.packet.ParseBTH(h, run.Payload[i*size:(i+1)*size])
		in.packet.BTH.PSN = first.Add(i)
		if !in.deliver(now, r, &d, q) {
			in.counters.QP[qp.DropOutOfOrder] += uint64(run.N - i - 1)
			return
		}
	}
}

// placedAsRun handles a run that was placed, whose header was parsed, if it can
// be handled as one, and lies where it would be copied now.
func (in *receiver) placedAsRun(now clock.Time, r *Ready, q *QP, run *transport.PlacedRun) bool {
	if !q.takesRuns(&run.First) {
		return false
	}
	v := q.core.Halves().Middle(run.First.Src, &in.packet.BTH, len(run.Payload)/run.N, run.N)
	defer v.Release()
	if !startsWith(v.Target(0, v.Len()), run.Payload) {
		return false
	}
	in.deliverRun(now, r, q, run.N, len(run.Payload)/run.N)
	return true
}

// startsWith reports whether part is the memory that b begins with.
func startsWith(b, part []byte) bool { return len(b) >= len(part) && &b[0] == &part[0] }
