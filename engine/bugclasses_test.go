package engine

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// read makes a READ of n bytes of what is granted, for q.
func (p *prey) read(q *QP, ahead, n int) transport.RxPacket {
	pkt := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCReadRequest, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(),
		PSN: rocev2.PSN(preyPSN).Add(ahead)}}
	pkt.RETH = rocev2.RETH{VA: p.granted.Addr(), RKey: uint32(p.granted.RKey()), Length: uint32(n)}
	return transport.RxPacket{Data: append(pkt.AppendTo(nil), 0, 0, 0, 0), Src: preyPeer, Dst: p.addr, SrcPort: rocev2.UDPPort,
		ICRC: transport.ICRCVerified}
}

// In other stacks a change of the number of responder resources freed those
// that answers were made from, and those that a duplicate was looked up in.
// Here it is refused while READs wait for their answers, and afterwards a
// duplicate is answered anew or gets a NAK.
func TestResponderResourcesInUse(t *testing.T) {
	t.Parallel()
	const reads, size = 4, preyPart
	for depth := range uint8(20) {
		p := newPrey(t)
		q := p.qps[0]
		p.modify(q, ib.Attr{State: ib.StateSQD}, ib.AttrState)
		var storm []transport.RxPacket
		for i := range reads {
			storm = append(storm, p.read(q, i*size/preyMTU, size))
		}
		resize := func() error { return p.e.Modify(q, &ib.Attr{MaxDestRdAtomic: depth}, ib.AttrMaxDestRdAtomic) }
		p.e.Receive(p.w.now, storm)
		if err := resize(); !errors.Is(err, ib.ErrNotDrained) {
			t.Fatalf("depth %d while %d READs wait for their answers: %v", depth, reads, err)
		}
		small := transport.NewTxBatch(8 << 10) // ends in the middle of an answer
		p.e.Fill(p.w.now, small)
		if err := resize(); !errors.Is(err, ib.ErrNotDrained) {
			t.Fatalf("depth %d in the middle of an answer of %d packets: %v", depth, small.Len(), err)
		}
		p.pump()
		if err := resize(); err != nil {
			t.Fatalf("depth %d: %v", depth, err)
		}
		for _, d := range storm { // all of them duplicates now
			p.take(d)
		}
		if s := q.Core().State(); s != ib.StateSQD {
			t.Fatalf("depth %d: duplicates have taken the queue pair to %v", depth, s)
		}
		p.end()
	}
}
