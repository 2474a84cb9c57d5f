package engine

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// Packets in the middle of a message differ in PSN and payload only. Those that
// follow each other are handled as a run: one search for the queue pair, one
// check of its state, its rights and its region. All that is odd about a packet
// ends the run before it, and has it handled alone. The result is what it would
// be if all were.

// maxRun is how many packets a run has at most: the region is pinned until they
// are copied.
const maxRun = 64

// inMiddle reports whether a packet can be part of a run.
func inMiddle(b []byte) bool {
	const middles = 1<<rocev2.RCSendMiddle | 1<<rocev2.RCWriteMiddle | 1<<rocev2.RCReadResponseMiddle
	return len(b) > rocev2.BTHLen+rocev2.ICRCLen && uint32(middles)>>b[0]&1 != 0
}

// takeRun handles as a run what a batch begins with, of which the first packet
// can be part of one. It returns how many packets are done, or else how many
// are to be handled one by one: one at least, and those of a run that its queue
// pair does not take as one, so that nothing is looked at twice.
func (in *receiver) takeRun(now clock.Time, r *Ready, batch []transport.RxPacket) (done, alone int) {
	first := batch[0].Data
	h := [rocev2.BTHLen]byte(first) // once: memory that is shared may change
	n := lengthOfRun(&h, batch)
	if n < 2 {
		return 0, 1
	}
	in.packet.ParseBTH(&h, nil)
	d, size, q := &batch[0], len(first)-rocev2.BTHLen-rocev2.ICRCLen, in.table.get(in.packet.BTH.DestQPN)
	if q == nil || !q.takesRuns(d) {
		return 0, n
	}
	v := q.core.Halves().Middle(d.Src, &in.packet.BTH, size, n)
	n, alone = int(min(uint64(n), v.Len()/uint64(size))), n
	copied := n >= 2 && copyRun(v, batch[:n], size)
	v.Release()
	if !copied {
		return 0, alone
	}
	return in.deliverRun(now, r, q, n, size), 0
}

// lengthOfRun returns how many packets of a batch, whose first has the header
// h, are one run, as far as that shows without the queue pair; 0 if not even
// the first may be part of one.
func lengthOfRun(h *[rocev2.BTHLen]byte, batch []transport.RxPacket) int {
	const padAndVersion = 0x3f
	first := &batch[0]
	if h[1]&padAndVersion != 0 || first.ICRC.Refuses() || first.Dst.IsMulticast() {
		return 0
	}
	head, psn := binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint32(h[8:])
	rest := psn &^ uint32(rocev2.PSNMask)
	n := 1
	for ; n < min(len(batch), maxRun); n++ {
		d := &batch[n]
		if len(d.Data) != len(first.Data) || binary.BigEndian.Uint64(d.Data) != head ||
			binary.BigEndian.Uint32(d.Data[8:]) != rest|uint32(rocev2.PSN(psn).Add(n)) ||
			d.ICRC.Refuses() || d.SPI != first.SPI || d.SrcPort != first.SrcPort || d.TrafficClass != first.TrafficClass ||
			d.Src != first.Src || d.Dst != first.Dst {
			break
		}
	}
	return n
}

// takesRuns reports whether packets like d may be handled as a run: nothing is
// to be learned of the peer from them, and the network has not marked them.
func (q *QP) takesRuns(d *transport.RxPacket) bool {
	a := qp.Arrival{TrafficClass: d.TrafficClass}
	return q.portVerified && q.fromPeer(d) && q.security != SecurityEither && !a.Marked()
}

// copyRun copies payloads of size bytes to where they belong.
func copyRun(v memreg.View, batch []transport.RxPacket, size int) bool {
	if b := v.Place(0, uint64(len(batch)*size)); b != nil {
		for i := range batch {
			copy(b[i*size:(i+1)*size], batch[i].Data[rocev2.BTHLen:])
		}
		return true
	}
	for i := range batch {
		if v.CopyIn(uint64(i*size), batch[i].Data[rocev2.BTHLen:][:size]) != ib.FaultNone {
			return false
		}
	}
	return true
}

// deliverRun hands n packets of size bytes with the header that was parsed to
// q. Their payloads lie where they belong. It returns how many q has taken.
func (in *receiver) deliverRun(now clock.Time, r *Ready, q *QP, n, size int) int {
	op := in.packet.BTH.Opcode
	n = q.core.HandleRun(now, op, n)
	in.counters.Payload += uint64(n) * uint64(size)
	r.Taken = true
	if in.cfg.Class != nil {
		in.finals.notice(q)
	}
	in.handled(r, q, op != rocev2.RCReadResponseMiddle)
	return n
}
