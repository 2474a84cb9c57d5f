package engine

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// read makes a READ of n bytes of what is granted, for q.
func (p *victim) read(q *QP, ahead, n int) transport.RxPacket {
	pkt := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCReadRequest, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(),
		PSN: rocev2.PSN(victimPSN).Add(ahead)}}
	pkt.RETH = rocev2.RETH{VA: p.granted.Addr(), RKey: uint32(p.granted.RKey()), Length: uint32(n)}
	return transport.RxPacket{Data: append(pkt.AppendTo(nil), 0, 0, 0, 0), Src: victimPeer, Dst: p.addr, SrcPort: rocev2.UDPPort,
		ICRC: transport.ICRCVerified}
}

// In other stacks a change of the number of responder resources freed those
// that answers were made from, and those that a duplicate was looked up in.
// Here it is refused while READs wait for their answers, and afterwards a
// duplicate is answered anew or gets a NAK.
func TestResponderResourcesInUse(t *testing.T) {
	t.Parallel()
	const reads, size = 4, victimPart
	for depth := range uint8(20) {
		p := newVictim(t)
		q := p.qps[0]
		p.modify(q, ib.Attr{State: ib.StateSQD}, ib.AttrState)
		var storm []transport.RxPacket
		for i := range reads {
			storm = append(storm, p.read(q, i*size/victimMTU, size))
		}
		resize := func() error { return p.e.Modify(q, &ib.Attr{MaxDestRdAtomic: depth}, ib.AttrMaxDestRdAtomic) }
		p.e.Receive(p.w.now, storm)
		if err := resize(); !errors.Is(err, ib.ErrNotDrained) {
			t.Fatalf("depth %d while %d READs wait for their answers: %v", depth, reads, err)
		}
		small := transport.NewTxBatch(8 << 10) // ends in the middle of an answer
		p.e.Fill(p.w.now, small, AllClasses)
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

// invalidate makes a SEND with invalidate for q.
func (p *victim) invalidate(q *QP, key ib.Key) transport.RxPacket {
	pkt := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnlyInv, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(), PSN: q.Core().Attr().RQPSN}}
	pkt.IETH.RKey = uint32(key)
	return transport.RxPacket{Data: append(pkt.AppendTo(nil), 0, 0, 0, 0), Src: victimPeer, Dst: p.addr, SrcPort: rocev2.UDPPort,
		ICRC: transport.ICRCVerified}
}

// The second invalidation of a memory window, by the peer or by a work request,
// crashed other stacks. Here it is refused, and the first has ended the key.
func TestDoubleInvalidateOfAWindow(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"peer", "program"} {
		for _, second := range []string{"peer", "program"} {
			p := newVictim(t)
			q, w := p.qps[0], p.windows[1]
			key := w.RKey()
			by := func(who string) {
				if who == "peer" {
					p.take(p.invalidate(q, key))
					return
				}
				p.post(q, ib.SendWR{Opcode: ib.OpLocalInv, InvalidateKey: key})
				p.pump()
			}
			by(first)
			if s := q.Core().State(); s != ib.StateRTS || w.Grant().Alive() {
				t.Fatalf("%s: state %v, the window stands for memory: %v", first, s, w.Grant().Alive())
			}
			by(second)
			if s := q.Core().State(); s != ib.StateErr {
				t.Errorf("%s, then %s: state %v", first, second, s)
			}
			p.check()
			p.end()
		}
	}
}

// A window of one protection domain was bound to a region of another one. Here
// the bind fails, and the region cannot be reached.
func TestWindowBindChecksTheDomain(t *testing.T) {
	t.Parallel()
	other := []string{"window", "region", "both", "none"}
	for _, what := range other {
		p := newVictim(t)
		q, pd := p.qps[0], p.table.AllocPD()
		windowPD, regionPD := p.pd, p.pd
		if what == "window" || what == "both" {
			windowPD = pd
		}
		if what == "region" || what == "both" {
			regionPD = pd
		}
		w, err := p.table.AllocWindow(windowPD, ib.MWType2)
		p.w.must(err)
		mr, err := p.table.Register(regionPD, memreg.Local(make([]byte, 64)), memreg.Options{Access: ib.LocalWrite | ib.MWBind})
		p.w.must(err)
		p.post(q, ib.SendWR{Opcode: ib.OpBindMW, Bind: &ib.BindMW{Window: w.RKey(), NewKey: w.RKey() ^ 1, Region: mr.LKey(),
			Addr: mr.Addr(), Length: 64, Access: ib.RemoteRead}})
		p.pump()
		want, alive := ib.StateErr, false
		if what == "none" { // of another domain: the bind is what it claims to be
			want, alive = ib.StateRTS, true
		}
		if s := q.Core().State(); s != want || w.Grant().Alive() != alive {
			t.Errorf("%s of another domain: state %v, the window stands for memory: %v", what, s, w.Grant().Alive())
		}
		p.end()
	}
}

// A READ that waited for its answer was answered from memory that its window
// did not stand for any more.
func TestWindowEndsWhileAReadWaits(t *testing.T) {
	t.Parallel()
	p := newVictim(t)
	q, w := p.qps[0], p.windows[1]
	d := p.read(q, 0, 2048)
	pkt := rocev2.Packet{}
	p.w.must(pkt.Parse(d.Data))
	pkt.RETH.VA, pkt.RETH.RKey = p.granted.Addr()+1024, uint32(w.RKey())
	d.Data = append(pkt.AppendTo(nil), 0, 0, 0, 0)
	p.e.Receive(p.w.now, []transport.RxPacket{d})
	p.table.FreeWindow(w)
	before := q.Core().Stats().TxBytes
	if p.pump(); q.Core().State() != ib.StateErr || q.Core().Stats().TxBytes != before {
		t.Errorf("state %v, %d bytes sent from a window that has ended", q.Core().State(), q.Core().Stats().TxBytes-before)
	}
	p.end()
}
