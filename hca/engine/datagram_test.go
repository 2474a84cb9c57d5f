package engine

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

const testQKey = 0x11111111

// newTyped makes a queue pair of an unreliable service in INIT.
func (h *host) newTyped(typ ib.QPType) *QP {
	h.w.t.Helper()
	q, err := h.e.CreateQP(qp.Config{Type: typ, PortMTU: rocev2.MTU4096, PD: h.pd, SendCQ: h, RecvCQ: h, MaxSendWR: 64, MaxRecvWR: 64}, nil)
	h.w.must(err)
	mask := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey
	switch typ {
	case ib.UC:
		mask = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess
	case ib.GSI:
		mask &^= ib.AttrPort
	}
	h.modify(q, ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite, QKey: testQKey}, mask)
	return q
}

// newUD makes a queue pair that sends and receives datagrams.
func (h *host) newUD(typ ib.QPType) *QP {
	h.w.t.Helper()
	q := h.newTyped(typ)
	h.modify(q, ib.Attr{State: ib.StateRTR}, ib.AttrState)
	h.modify(q, ib.Attr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN)
	return q
}

// connectUC makes a queue pair on each of a and b and connects them.
func connectUC(a, b *host, mtu rocev2.MTU, native bool) (qa, qb *QP) {
	a.w.t.Helper()
	qa, qb = a.newTyped(ib.UC), b.newTyped(ib.UC)
	for _, s := range []struct {
		h, to   *host
		q, peer *QP
	}{{a, b, qa, qb}, {b, a, qb, qa}} {
		s.h.modify(s.q, ib.Attr{State: ib.StateRTR, AV: ib.AddressVector{DGID: s.to.addr, Native: native}, PathMTU: mtu, DestQPN: s.peer.QPN()},
			ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN)
		s.h.modify(s.q, ib.Attr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN)
	}
	return qa, qb
}

func (h *host) ah(to netip.Addr) *ib.AddressHandle {
	ah := &ib.AddressHandle{Domain: h.pd}
	ah.SetVector(&ib.AddressVector{DGID: to})
	return ah
}

// datagram posts a SEND of n bytes to number qpn at ah.
func (h *host) datagram(q *QP, ah *ib.AddressHandle, qpn rocev2.QPN, n uint32) {
	h.w.t.Helper()
	_, err := h.e.PostSend(q, []ib.SendWR{{Opcode: ib.OpSend, Signaled: true, SGList: []ib.SGE{h.mr.SGE(0, n)}, AH: ah, RemoteQPN: qpn, RemoteQKey: testQKey}})
	h.w.must(err)
	h.transmit()
}

func (h *host) recv(q *QP, n uint32) {
	h.w.t.Helper()
	_, err := h.e.PostRecv(q, []ib.RecvWR{{SGList: []ib.SGE{h.mr.SGE(0, n)}}})
	h.w.must(err)
}

// TestUnreliableSenderLeavesRoom: UC and UD have nothing that stops them, and
// turns bound them: an acknowledgement is the first packet of the next batch,
// and a neighbour that sends bulk over RC has as much of every batch.
func TestUnreliableSenderLeavesRoom(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		w := newWorld(t, 1)
		a, b := w.newPair(Config{})
		a.mtu, b.mtu = rocev2.MTU4096, rocev2.MTU4096
		rc, rcPeer := connectPair(a, b, true)
		a.held = true
		var hog *QP
		if typ == ib.UC {
			hog, _ = connectUC(a, b, rocev2.MTU4096, true)
			for range 60 {
				a.write(hog, b, 1<<20)
			}
		} else {
			hog = a.newUD(ib.UD)
			ah := a.ah(b.addr)
			for range 60 {
				a.datagram(hog, ah, 0x77, 4096)
			}
		}
		a.nextTurns() // the hog has begun
		if hog.Core().Stats().TxPackets == 0 || !hog.Pending() {
			t.Fatalf("%v: %d packets", typ, hog.Core().Stats().TxPackets)
		}
		b.write(rcPeer, a, 8)
		w.sleep(10 * w.delay)
		a.w.tx.Reset()
		a.e.Fill(w.now, a.w.tx, AllClasses)
		if data, _ := a.w.tx.Packet(0); rocev2.Opcode(data[0]) != rocev2.RCAcknowledge {
			t.Errorf("%v: the batch begins with %v, not with the acknowledgement", typ, rocev2.Opcode(data[0]))
		}
		if typ == ib.UD {
			continue // too few packets fit into its queue
		}
		for range 4 {
			a.write(rc, b, 1<<20)
		}
		total := map[rocev2.QPN]int{}
		for range 4 {
			for qpn, n := range a.nextTurns() {
				total[qpn] += n
			}
		}
		// The window of RC ends, so it is the first batches that tell.
		if mine, hogs := total[rcPeer.QPN()], total[hog.Core().Attr().DestQPN]; mine < 64<<10 || hogs < mine/2 {
			t.Errorf("%v: RC has %d bytes, and it %d", typ, mine, hogs)
		}
	}
}

// TestUnreliableIsNotLimited: the limit of what is in flight to a peer stops
// reliable queue pairs only; without acknowledgements nothing would tell a
// queue pair to go on.
func TestUnreliableIsNotLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: 16 << 10}})
	rc, _ := connectPair(a, b, true)
	uc, _ := connectUC(a, b, rocev2.MTU1024, true)
	for range 8 {
		a.write(rc, b, 64<<10)
	}
	if u := a.e.Usage(); u.InFlight == 0 {
		t.Fatalf("%+v", u)
	}
	a.write(uc, b, 256<<10)
	if n := uc.Core().Stats().SendDone; n != 1 {
		t.Errorf("%d of 1 requests over UC are sent", n)
	}
	u := a.e.Usage()
	if a.destroy(uc); u.Limited > 1 || u.Busy > 1 {
		t.Errorf("%+v", u)
	}
	a.waitOK(9)
}

// TestDatagramPaths: packets to one place form a run, whatever handle they
// come from; what is kept of places is bounded.
func TestDatagramPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	q := a.newUD(ib.UD)
	a.held = true
	for _, ah := range []*ib.AddressHandle{a.ah(b.addr), a.ah(b.addr), a.ah(a.addr)} {
		for range 5 {
			a.datagram(q, ah, 0x77, 1000)
		}
	}
	w.tx.Reset()
	a.e.Fill(w.now, w.tx, AllClasses)
	if r := w.tx.Run(0, true); r.Len() != 10 || r.Path.Dst != b.addr || w.tx.Len() != 15 {
		t.Errorf("%d of %d packets are a run to %v", r.Len(), w.tx.Len(), r.Path.Dst)
	}
	// A handle that changes: what was posted goes where it said before.
	ah := a.ah(b.addr)
	a.datagram(q, ah, 0x77, 1)
	ah.SetVector(&ib.AddressVector{DGID: a.addr, TrafficClass: 0x6a, HopLimit: 9, SrcPort: 50000})
	a.datagram(q, ah, 0x77, 1)
	ah.SetVector(nil)
	w.tx.Reset()
	a.e.Fill(w.now, w.tx, AllClasses)
	_, first := w.tx.Packet(0)
	_, second := w.tx.Packet(1)
	if first.Dst != b.addr || second.Dst != a.addr || second.TrafficClass != 0x6a || second.HopLimit != 9 || second.SrcPort != 50000 {
		t.Errorf("paths %+v and %+v", first, second)
	}
	for i := range 3*maxPaths + 100 {
		a.datagram(q, a.ah(addrOf(1000+i)), 0x77, 1)
		w.tx.Reset()
		a.e.Fill(w.now, w.tx, AllClasses)
		if _, p := w.tx.Packet(0); p.Dst != addrOf(1000+i) {
			t.Fatalf("%v instead of %v", p.Dst, addrOf(1000+i))
		}
	}
	if n := len(a.e.paths.recent) + len(a.e.paths.older); n > 2*maxPaths {
		t.Errorf("%d paths are kept", n)
	}
}

// TestUCTakesAnotherWay: in SQD the address vector of UC can be changed. What
// is sent from then on goes by it, and is taken from there (IBTA 11.2.5.2).
func TestUCTakesAnotherWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	q, _ := connectUC(a, b, rocev2.MTU1024, false)
	a.held = true
	sent := func(why string, want ib.AddressVector) {
		t.Helper()
		_, err := a.e.PostSend(q, []ib.SendWR{{Opcode: ib.OpSend, SGList: []ib.SGE{a.mr.SGE(0, 3000)}}})
		w.must(err)
		w.tx.Reset()
		a.e.Fill(w.now, w.tx, AllClasses)
		if w.tx.Len() != 3 {
			t.Fatalf("%s: %d packets", why, w.tx.Len())
		}
		if _, p := w.tx.Packet(2); p.Dst != want.DGID || p.TrafficClass != want.TrafficClass || p.SrcPort != want.SrcPort {
			t.Errorf("%s: by %+v", why, p)
		}
	}
	sent("at first", ib.AddressVector{DGID: b.addr})
	a.modify(q, ib.Attr{State: ib.StateSQD}, ib.AttrState)
	other := ib.AddressVector{DGID: addrOf(77), TrafficClass: 106, SrcPort: 50000}
	a.modify(q, ib.Attr{AV: other}, ib.AttrAV)
	a.modify(q, ib.Attr{State: ib.StateRTS}, ib.AttrState)
	sent("then", other)
	a.recv(q, 100)
	for _, from := range []netip.Addr{b.addr, other.DGID} {
		a.forge(q, from, rocev2.UDPPort, rocev2.UCSendOnly, 0)
	}
	if n, peer := q.Core().Stats().RecvDone, a.e.Counters().QP[qp.DropPeer]; n != 1 || peer != 1 {
		t.Errorf("%d received, %d dropped as of another peer", n, peer)
	}
}

// TestDatagramsLoopBack: with Loopback datagrams for the own address pass
// inside, beside others of the same queue pair, and are charged to its turn.
func TestDatagramsLoopBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{Loopback: true})
	q, other, far := a.newUD(ib.UD), a.newUD(ib.UD), b.newUD(ib.UD)
	copy(a.mem, "own")
	for range 40 {
		_, err := a.e.PostRecv(other, []ib.RecvWR{{SGList: []ib.SGE{a.mr.SGE(8192, 5000)}}})
		w.must(err)
		b.recv(far, 5000)
	}
	a.held = true
	own := a.ah(a.addr)
	own.SetVector(&ib.AddressVector{DGID: a.addr, TrafficClass: 106, HopLimit: 9})
	for range 30 {
		a.datagram(q, own, other.QPN(), 4000)
		a.datagram(q, a.ah(b.addr), far.QPN(), 4000)
	}
	a.held = false
	a.transmit()
	w.sleep(10 * w.delay)
	if s := other.Core().Stats(); s.RecvDone != 30 || a.e.Counters().LoopPackets != 30 || string(a.mem[8192+rocev2.GRHLen:][:3]) != "own" {
		t.Errorf("%d received, %d passed inside", s.RecvDone, a.e.Counters().LoopPackets)
	}
	if s := far.Core().Stats(); s.RecvDone != 30 {
		t.Errorf("%d received elsewhere", s.RecvDone)
	}
	var h rocev2.GRH
	if err := h.Parse(a.mem[8192:]); err != nil || h.Src != a.addr || h.Dst != a.addr || h.TrafficClass != 106 || h.HopLimit != 9 {
		t.Errorf("header %+v, %v", h, err)
	}
}

// TestUnreliablePorts: neither UC nor UD learns the peer's source port from
// what arrives: a packet of UC is taken whatever its PSN, so one from any
// sender could shut the peer out.
func TestUnreliablePorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a, b := w.newPair(Config{})
	_, uc := connectUC(a, b, rocev2.MTU1024, true)
	ud := b.newUD(ib.UD)
	for i, port := range []uint16{rocev2.UDPPort, 50000, 50001} {
		b.recv(uc, 100)
		b.forge(uc, a.addr, port, rocev2.UCSendOnly, rocev2.PSN(1000*i))
		if p := uc.Peer(); p.Port != 0 || p.Wide {
			t.Errorf("the peer of UC is %+v", p)
		}
		b.forge(ud, a.addr, port, rocev2.UDSendOnly, 0)
	}
	if n := b.e.Counters().Device[DropSourcePort]; n != 0 || uc.Core().Stats().RecvDone != 3 {
		t.Errorf("%d dropped, %d received", n, uc.Core().Stats().RecvDone)
	}
	if n := b.e.Counters().QP[qp.DropQKey]; n != 3 {
		t.Errorf("%d datagrams with the Q_Key 0", n)
	}
}

// TestOneGSI: the management queue pair has number 1, in whatever shard; there
// is one.
func TestOneGSI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.newHost(Config{Shard: 1, Shards: 4}, 1<<16)
	b := w.newHost(Config{}, 1<<16)
	q := a.newUD(ib.GSI)
	if q.QPN() != 1 || a.e.Lookup(1) != q || q.Core().Attr().QKey != qp.GSIQKey {
		t.Errorf("QPN %v, Q_Key %#x", q.QPN(), q.Core().Attr().QKey)
	}
	_, err := a.e.CreateQP(qp.Config{Type: ib.GSI, PortMTU: rocev2.MTU4096, PD: a.pd, SendCQ: a, RecvCQ: a}, nil)
	if !errors.Is(err, ib.ErrGSIInUse) {
		t.Errorf("a second one: %v", err)
	}
	a.recv(q, 296)
	from := b.newUD(ib.GSI)
	b.datagram(from, b.ah(a.addr), 1, 256)
	w.sleep(10 * w.delay)
	if len(a.done) != 1 || a.done[0].SrcQPN != 1 || a.done[0].ByteLen != 296 {
		t.Errorf("%v", a.done)
	}
	// Nothing is at number 0.
	b.datagram(from, b.ah(a.addr), 2, 256)
	if r := a.forgeTo(0, b.addr, rocev2.UDSendOnly); len(r.Misrouted) > 1 {
		t.Errorf("%d packets for number 0", len(r.Misrouted))
	}
	a.destroy(q)
	a.newUD(ib.GSI)
}

// forgeTo hands the engine a packet for any number.
func (h *host) forgeTo(qpn rocev2.QPN, src netip.Addr, op rocev2.Opcode) Ready {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: qpn}}
	d := transport.RxPacket{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: src, Dst: h.addr, ICRC: transport.ICRCVerified}
	return h.e.Receive(h.w.now, []transport.RxPacket{d})
}

// TestUnreliableAllocatesNothing: nothing is allocated between post and
// completion (see TestNoAllocations of package qp).
func TestUnreliableAllocatesNothing(t *testing.T) { // not parallel: it counts
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		w := newWorld(t, 1)
		a, b := w.newPair(Config{})
		var qa, qb *QP
		if typ == ib.UC {
			qa, qb = connectUC(a, b, rocev2.MTU1024, true)
		} else {
			qa, qb = a.newUD(typ), b.newUD(typ)
		}
		send := []ib.SendWR{{Opcode: ib.OpSend, Signaled: true, SGList: []ib.SGE{a.mr.SGE(0, 3000)}, AH: a.ah(b.addr), RemoteQPN: qb.QPN(), RemoteQKey: testQKey}}
		recv := []ib.RecvWR{{SGList: []ib.SGE{b.mr.SGE(0, 4000)}}}
		rx := make([]transport.RxPacket, 0, 16)
		round := func() {
			_, err := b.e.PostRecv(qb, recv)
			w.must(err)
			_, err = a.e.PostSend(qa, send)
			w.must(err)
			w.tx.Reset()
			a.e.Fill(w.now, w.tx, AllClasses)
			w.tx.SealAll(netip.AddrPortFrom(a.addr, rocev2.UDPPort), true)
			rx = rx[:0]
			for i := range w.tx.Len() {
				data, _ := w.tx.Sealed(i)
				rx = append(rx, transport.RxPacket{Data: data, Src: a.addr, Dst: b.addr, ICRC: transport.ICRCVerified})
			}
			b.e.Receive(w.now, rx)
			if len(b.done) != 1 {
				t.Fatalf("%v: %v", typ, b.done)
			}
			a.done, b.done = a.done[:0], b.done[:0]
		}
		round()
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("%v: %v allocations", typ, n)
		}
	}
}
