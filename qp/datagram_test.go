package qp

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/captures"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

const testQKey = 0x11111111

// newDatagramPair makes two queue pairs of an unreliable service in RTS.
func newDatagramPair(t testing.TB, typ ib.QPType, with ...func(*Config)) *pair {
	t.Helper()
	c := pairConfig{mem: 1 << 16, config: Config{Type: typ, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}}
	for _, f := range with {
		f(&c.config)
	}
	p := &pair{t: t, buf: make([]byte, rocev2.MaxPacketLen)}
	p.a, p.b = newEnd(t, 1, c), newEnd(t, 2, c)
	for _, e := range []*testEnd{p.a, p.b} {
		a := ib.Attr{Port: 1, Access: testAccess, PathMTU: rocev2.MTU1024, DestQPN: p.peer(e).QPN(), QKey: testQKey,
			AV: ib.AddressVector{DGID: p.peer(e).addr}}
		masks := []ib.AttrMask{ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey, 0, ib.AttrSQPSN}
		switch typ {
		case ib.UC:
			masks[0], masks[1] = ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess, ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN
		case ib.GSI:
			masks[0] &^= ib.AttrPort
		}
		for i, m := range masks {
			a.State = ib.StateInit + ib.State(i)
			must(t, e.Modify(&a, m|ib.AttrState))
		}
	}
	return p
}

// send returns a SEND of n bytes from a to b.
func (p *pair) send(id uint64, n int) *ib.SendWR {
	wr := &ib.SendWR{ID: id, Opcode: ib.OpSend, Signaled: true, SGList: p.a.sge(0, n), RemoteQPN: p.b.QPN(), RemoteQKey: testQKey,
		AH: &ib.AddressHandle{Domain: p.a.pd}}
	wr.AH.SetVector(&ib.AddressVector{DGID: p.b.addr})
	return wr
}

// TestUnreliablePages: a request waits for a page of its data, and goes on. A
// message that meets a missing page where it is received is dropped, the page
// is fetched, and the next message arrives.
func TestUnreliablePages(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		p := newDatagramPair(t, typ)
		addPaged(t, p.a, 1<<30)
		addPaged(t, p.b, 1<<30)
		n := 1000
		if typ == ib.UC {
			n = 9000 // three pages
		}
		must(t, p.b.PostRecv(&ib.RecvWR{ID: 1, SGList: p.b.sge(0, 20000)}))
		for id := range uint64(8) {
			must(t, p.a.PostSend(p.send(id, n)))
			p.run()
			if p.b.Stats().RecvDone == 1 {
				break
			}
			if p.b.Stats().Drops.NotPresent != id+1 {
				t.Fatalf("%v: message %d: %v", typ, id, p.b.Stats().Drops)
			}
		}
		at := 0
		if typ == ib.UD {
			at = rocev2.GRHLen
		}
		if p.b.Stats().RecvDone != 1 || !bytes.Equal(p.b.mem[at:][:n], p.a.mem[:n]) || p.b.Stats().Drops.NotPresent == 0 {
			t.Errorf("%v: %d received, %v", typ, p.b.Stats().RecvDone, p.b.Stats().Drops)
		}
	}
}

// TestUCCounters: messages that are cut off are counted, in whatever way.
func TestUCCounters(t *testing.T) {
	t.Parallel()
	p := newDatagramPair(t, ib.UC)
	lose := 0
	p.drop = func(_ *testEnd, pkt *rocev2.Packet) bool {
		lose--
		return lose == 0
	}
	for id, c := range []struct {
		lose int    // the packet of three that is lost
		want uint64 // messages of which a part came
	}{{1, 0}, {2, 1}, {3, 1}, {0, 2}} { // a lost LAST shows with the next FIRST
		must(t, p.b.PostRecv(&ib.RecvWR{ID: uint64(id), SGList: p.b.sge(0, 4096)}))
		lose = c.lose
		must(t, p.a.PostSend(p.send(uint64(id), 3000)))
		p.run()
		if got := p.b.Stats().MessagesDropped; got != c.want {
			t.Errorf("packet %d lost: %d messages dropped, want %d", c.lose, got, c.want)
		}
	}
	if got := p.b.rq.statuses(); got != "0 SUCCESS" {
		t.Errorf("received %q", got)
	}
}

// TestUnreliableOverflow: a completion that its queue does not take ends the
// queue pair, and is told.
func TestUnreliableOverflow(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		for _, sender := range []bool{true, false} {
			p := newDatagramPair(t, typ)
			e, cq := p.a, p.a.sq
			if !sender {
				e, cq = p.b, p.b.rq
			}
			cq.limit = 1
			for id := range uint64(3) {
				must(t, p.b.PostRecv(&ib.RecvWR{ID: id, SGList: p.b.sge(0, 4096)}))
				must(t, p.a.PostSend(p.send(id, 8)))
			}
			p.run()
			if ev, _ := e.PollEvent(); ev != ib.EventQPFatal || e.State() != ib.StateErr || e.Stats().CQOverflows == 0 {
				t.Errorf("%v, sender %v: event %v, state %v", typ, sender, ev, e.State())
			}
		}
	}
}

// TestSQEOverflow: where the completions of requests that have failed, or are
// flushed in SQE, find no room, the queue pair goes to ERR as with any other.
func TestSQEOverflow(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.UC, ib.UD} {
		for room := 1; room <= 2; room++ {
			p := newDatagramPair(t, typ)
			p.a.sq.limit = room
			must(t, p.a.PostRecv(&ib.RecvWR{ID: 5}))
			bad := p.send(1, 8)
			bad.SGList[0].LKey++
			must(t, p.a.PostSend(bad))
			must(t, p.a.PostSend(p.send(2, 8)))
			p.run()
			if room == 2 { // for both, and not for what comes in SQE
				if p.a.State() != ib.StateSQE {
					t.Fatalf("%v: %v", typ, p.a.State())
				}
				must(t, p.a.PostSend(p.send(3, 8)))
				p.run()
			}
			if ev, _ := p.a.PollEvent(); ev != ib.EventQPFatal || p.a.State() != ib.StateErr || p.a.rq.statuses() != "5 WR_FLUSH_ERR" {
				t.Errorf("%v, room for %d: event %v, state %v", typ, room, ev, p.a.State())
			}
		}
	}
}

// TestUnreliableStates: what becomes of requests and receives on the way to
// RESET and ERR, from SQE too (IBTA 10.3.1).
func TestUnreliableStates(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.UC, ib.UD, ib.GSI} {
		p := newDatagramPair(t, typ)
		bad := p.send(1, 8)
		bad.SGList[0].LKey++
		must(t, p.a.PostRecv(&ib.RecvWR{ID: 5}))
		must(t, p.a.PostSend(bad))
		must(t, p.a.PostSend(p.send(2, 8)))
		p.run()
		if s := p.a.sq.statuses(); p.a.State() != ib.StateSQE || s != "1 LOC_PROT_ERR, 2 WR_FLUSH_ERR" {
			t.Errorf("%v: %v, %q", typ, p.a.State(), s)
		}
		must(t, p.a.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
		must(t, p.a.PostSend(p.send(3, 8)))
		if s, r := p.a.sq.statuses(), p.a.rq.statuses(); s != "3 WR_FLUSH_ERR" || r != "5 WR_FLUSH_ERR" {
			t.Errorf("%v: in ERR %q and %q", typ, s, r)
		}
		must(t, p.a.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
		if err := p.a.PostSend(p.send(4, 8)); err == nil {
			t.Errorf("%v: a send in RESET", typ)
		}
		q := p.a.QP
		q.Close()
		if q.State() != ib.StateReset || q.Stats().SendPosted != 3 {
			t.Errorf("%v: closed %v, %+v", typ, q.State(), q.Stats())
		}
	}
}

// TestGoldenDatagrams: the datagrams of Linux arrive, and the buffer of each
// begins with the header that it came with, byte for byte.
func TestGoldenDatagrams(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ud_pingpong.pcap", "ud_pingpong_v6.pcap"} {
		frames, _ := captures.File(t, "../rocev2/testdata/golden/"+name)
		received := 0
		for _, frame := range frames {
			ip := frame[14:]
			a := Arrival{Packet: new(rocev2.Packet)}
			var header, payload []byte
			if ip[0]>>4 == 4 {
				header, payload = append(make([]byte, 20), ip[:20]...), ip[28:int(ip[2])<<8|int(ip[3])]
				a.Src, a.Dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
				a.TrafficClass, a.HopLimit, a.IPID = ip[1], ip[8], uint16(ip[4])<<8|uint16(ip[5])
			} else {
				header, payload = ip[:40], ip[48:40+int(ip[4])<<8+int(ip[5])]
				a.Src, a.Dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
				a.TrafficClass, a.HopLimit = ip[0]<<4|ip[1]>>4, ip[7]
			}
			if err := a.Packet.Parse(payload); err != nil || a.Packet.BTH.Opcode != rocev2.UDSendOnly {
				continue // the frame of another protocol, or of the connection manager
			}
			p := newDatagramPair(t, ib.UD)
			must(t, p.b.Modify(&ib.Attr{QKey: a.Packet.DETH.QKey}, ib.AttrQKey))
			must(t, p.b.PostRecv(&ib.RecvWR{ID: 1, SGList: p.b.sge(0, 8192)}))
			a.Packet.BTH.DestQPN = p.b.QPN()
			if d := p.b.HandlePacket(0, &a); d != DropNone {
				t.Fatalf("%s: drop %v", name, d)
			}
			wc, n := p.b.rq.wcs[0], len(a.Packet.Payload)
			if int(wc.ByteLen) != 40+n || wc.SrcQPN != a.Packet.DETH.SrcQPN || !wc.WithGRH {
				t.Errorf("%s: %+v", name, wc)
			}
			if !bytes.Equal(p.b.mem[:40], header) || !bytes.Equal(p.b.mem[40:40+n], a.Packet.Payload) {
				t.Errorf("%s: buffer\n% x, want\n% x", name, p.b.mem[:40], header)
			}
			received++
		}
		if received < 4 {
			t.Errorf("%s: %d datagrams", name, received)
		}
	}
}

// TestDatagramHandles: the handle of a request must be of the domain of the
// queue pair (IBTA 11.4.1.1).
func TestDatagramHandles(t *testing.T) {
	t.Parallel()
	p := newDatagramPair(t, ib.UD)
	var other any = memreg.NewTable(func() uint32 { return 1 }).AllocPD()
	for _, domain := range []any{nil, other, 5} {
		wr := p.send(1, 8)
		wr.AH.Domain = domain
		if err := p.a.PostSend(wr); err == nil {
			t.Errorf("a handle of the domain %v", domain)
		}
	}
}

// FuzzUnreliable hands packets to queue pairs of UC and UD. Nothing may panic,
// and what completes has what was sent: a receive is as long as its message.
func FuzzUnreliable(f *testing.F) {
	for _, op := range []rocev2.Opcode{rocev2.UCSendFirst, rocev2.UCSendLast, rocev2.UCSendOnlyImm, rocev2.UCWriteFirst, rocev2.UCWriteOnlyImm,
		rocev2.UDSendOnly, rocev2.UDSendOnlyImm, rocev2.CNP} {
		h := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: 0x12, PSN: 0}, DETH: rocev2.DETH{QKey: testQKey},
			RETH: rocev2.RETH{VA: testIOVA, Length: 2000}, Payload: make([]byte, 1024)}
		one := h.AppendTo([]byte{0})
		f.Add(append(one, one...), uint8(op))
	}
	f.Fuzz(func(t *testing.T, data []byte, sizes uint8) {
		for _, typ := range []ib.QPType{ib.UC, ib.UD, ib.GSI} {
			fuzzUnreliable(t, typ, data, sizes)
		}
	})
}

func fuzzUnreliable(t *testing.T, typ ib.QPType, data []byte, sizes uint8) {
	p := newDatagramPair(t, typ)
	guard := bytes.Clone(p.b.mem[32768:])
	for i := range 8 {
		must(t, p.b.PostRecv(&ib.RecvWR{ID: uint64(i), SGList: p.b.sge(0, int(sizes)*16)}))
	}
	for len(data) > 0 && p.b.State() != ib.StateErr {
		// A byte says how long the packet is: 0 for all that is left.
		n := min(int(data[0])*8, len(data)-1)
		if data[0] == 0 {
			n = len(data) - 1
		}
		b := append(bytes.Clone(data[1:1+n]), 0, 0, 0, 0)
		data = data[1+n:]
		var pkt rocev2.Packet
		if pkt.Parse(b) != nil {
			continue
		}
		pkt.BTH.DestQPN, pkt.RETH.RKey = p.b.QPN(), uint32(p.b.mr.RKey())
		pkt.RETH.VA = testIOVA + pkt.RETH.VA%16384
		a := Arrival{Packet: &pkt, Src: p.a.addr, Dst: p.b.addr, TrafficClass: b[0]}
		p.b.HandlePacket(p.now, &a)
		p.transfer(p.b, 4)
	}
	for i, wc := range p.b.rq.wcs {
		if wc.ID != uint64(i) || wc.Status == ib.StatusSuccess && wc.Opcode == ib.WCRecv && int(wc.ByteLen) > int(sizes)*16 {
			t.Fatalf("%v: completion %+v", typ, wc)
		}
	}
	if typ != ib.UC && !bytes.Equal(guard, p.b.mem[32768:]) {
		t.Fatalf("%v: memory that no request named was written", typ)
	}
}

// TestUCCongestion: marked data of UC is answered with a notification, which
// the sender counts; nothing is in flight that could become less (IBTA A17.9).
func TestUCCongestion(t *testing.T) {
	t.Parallel()
	p := newDatagramPair(t, ib.UC)
	must(t, p.b.PostRecv(&ib.RecvWR{ID: 1, SGList: p.b.sge(0, 4096)}))
	must(t, p.a.PostSend(p.send(1, 3000)))
	for n := p.a.poll(p.now, p.buf); n > 0; n = p.a.poll(p.now, p.buf) {
		must(t, p.pkt.Parse(p.buf[:n+rocev2.ICRCLen]))
		p.b.handleMarked(p.now, p.a.addr, &p.pkt)
	}
	if p.b.Ready().Owes != OwesAnswers {
		t.Error("no notification waits")
	}
	p.run()
	if a, b := p.a.Stats(), p.b.Stats(); b.ECNMarked != 3 || b.CNPsSent != 1 || a.CNPsReceived != 1 || b.RecvDone != 1 {
		t.Errorf("%d marked, %d notifications sent, %d received", b.ECNMarked, b.CNPsSent, a.CNPsReceived)
	}
	// Over UD there is no peer to tell.
	p = newDatagramPair(t, ib.UD)
	must(t, p.b.PostRecv(&ib.RecvWR{ID: 1, SGList: p.b.sge(0, 4096)}))
	must(t, p.a.PostSend(p.send(1, 100)))
	n := p.a.poll(p.now, p.buf)
	must(t, p.pkt.Parse(p.buf[:n+rocev2.ICRCLen]))
	p.b.handleMarked(p.now, p.a.addr, &p.pkt)
	if s := p.b.Stats(); s.ECNMarked != 1 || p.b.Ready().Owes == OwesAnswers || s.RecvDone != 1 {
		t.Errorf("UD: %d marked, a notification waits: %v", s.ECNMarked, p.b.Ready().Owes == OwesAnswers)
	}
}
