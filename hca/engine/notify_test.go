package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Congestion notifications have a traffic class of their own, DSCP 48 without
// ECN as adapters have it, and everything else the class of the connection.
func TestNotifyClass(t *testing.T) {
	t.Parallel()
	const data, marked = 26<<2 | 2, 26<<2 | 3
	for _, c := range []struct {
		given int
		want  uint8
	}{{0, 192}, {48<<2 | 2, 194}, {-1, data}, {data, data}} {
		for _, typ := range []ib.QPType{ib.RC, ib.UC} {
			w := newWorld(t, 1)
			a, b := w.newPair(Config{NotifyClass: c.given})
			qa, qb := connectPair(a, b, false)
			op := rocev2.RCSendOnly
			if typ == ib.UC {
				qa, qb = connectUC(a, b, rocev2.MTU1024, false)
				op = rocev2.UCSendOnly
			}
			b.held = true
			for _, q := range []*QP{qa, qb} {
				h, to := a, b
				if q == qb {
					h, to = b, a
				}
				h.modify(q, ib.Attr{State: ib.StateSQD}, ib.AttrState)
				h.modify(q, ib.Attr{AV: ib.AddressVector{DGID: to.addr, TrafficClass: data, SrcPort: 50001, HopLimit: 9}}, ib.AttrAV)
				h.modify(q, ib.Attr{State: ib.StateRTS}, ib.AttrState)
			}
			b.recv(qb, 100)
			p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: qb.QPN(), AckReq: true}, Payload: make([]byte, 8)}
			b.e.Receive(w.now, []transport.RxPacket{{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: a.addr, Dst: b.addr,
				SrcPort: rocev2.UDPPort, TrafficClass: marked, ICRC: transport.ICRCVerified}})
			_, err := b.e.PostSend(qb, []ib.SendWR{{Opcode: ib.OpSend, SGList: []ib.SGE{b.mr.SGE(0, 8)}}})
			w.must(err)
			w.tx.Reset()
			b.e.Fill(w.now, w.tx, AllClasses)
			var notices, others int
			for i := range w.tx.Len() {
				packet, path := w.tx.Packet(i)
				want := uint8(data)
				if rocev2.Opcode(packet[0]) == rocev2.CNP {
					want = c.want
					notices++
				} else {
					others++
				}
				if path.TrafficClass != want || path.Dst != a.addr || path.SrcPort != 50001 || path.HopLimit != 9 {
					t.Errorf("%v, NotifyClass %d: opcode %#x by %+v", typ, c.given, packet[0], path)
				}
			}
			if notices != 1 || others == 0 {
				t.Errorf("%v, NotifyClass %d: %d notifications, %d others", typ, c.given, notices, others)
			}
		}
	}
}

// Where the network has classes, a notification goes when that of its queue
// pair is paused.
func TestNotifyPassesPausedClass(t *testing.T) {
	t.Parallel()
	const data, marked = 26<<2 | 2, 26<<2 | 3
	w := newWorld(t, 1)
	a, b := w.newPair(Config{Class: func(tc uint8) uint8 { return tc >> 5 }, NotifyInterval: -1})
	qa, qb := a.newQP(), b.newQP()
	a.connect(qa, ib.AddressVector{DGID: b.addr, TrafficClass: data}, qb.QPN())
	b.connect(qb, ib.AddressVector{DGID: a.addr, TrafficClass: data}, qa.QPN())
	b.held = true
	receive := func() {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: qb.QPN(), AckReq: true}, Payload: make([]byte, 8)}
		b.e.Receive(w.now, []transport.RxPacket{{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: a.addr, Dst: b.addr,
			SrcPort: rocev2.UDPPort, TrafficClass: marked, ICRC: transport.ICRCVerified}})
	}
	b.recv(qb, 100)
	receive()
	if c := b.e.Classes(); c != 1<<6|1<<3 {
		t.Fatalf("classes %#x are ready, want 3 and 6", c)
	}
	w.tx.Reset()
	b.e.Fill(w.now, w.tx, AllClasses&^(1<<3))
	packet, path := w.tx.Packet(0)
	if w.tx.Len() != 1 || rocev2.Opcode(packet[0]) != rocev2.CNP || path.TrafficClass != 192 || b.e.Classes() != 1<<3 {
		t.Errorf("with class 3 paused: %d packets, the first is %x by %+v", w.tx.Len(), packet, path)
	}
	// The queue pair sends it no second time.
	w.tx.Reset()
	b.e.Fill(w.now, w.tx, AllClasses)
	if packet, _ := w.tx.Packet(0); w.tx.Len() != 1 || rocev2.Opcode(packet[0]) != rocev2.RCAcknowledge {
		t.Errorf("then %d packets, %x", w.tx.Len(), packet)
	}
}

// The engine makes the congestion control of its queue pairs, and a
// notification has it pace: by the engine's timer, in bounded time, and without
// a timer when all is done.
func TestEnginePacesByNotifications(t *testing.T) {
	t.Parallel()
	const line, n = 1_000_000_000, 500_000
	profile := cc.PaperProfile(line)
	profile.Min, profile.Additive, profile.Hyper, profile.Burst, profile.CutPeriod = line/8, 1, 0, 1, 0
	made := 0
	config := Config{NotifyInterval: -1, Congestion: func(c qp.WindowConfig) qp.Controller {
		made++
		return cc.NewDCQCN(cc.NewWindow(c), &profile)
	}}
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		made = 0
		w := newWorld(t, 1)
		w.delay = 10 * time.Microsecond
		a, b := w.newPair(config)
		qa, qb := connectPair(a, b, true)
		sender, q := a, qa
		if op == ib.OpRead {
			sender, q = b, qb
		}
		for range 3 { // to an eighth of the rate
			sender.forge(q, map[bool]*host{true: b, false: a}[sender == a].addr, rocev2.UDPPort, rocev2.CNP, 0)
		}
		if rate := qp.FlowOf(q.Core()).Rate; made != 2 || rate != line/8 || q.Core().Stats().RateCuts != 3 {
			t.Fatalf("%v: %d made, rate %d, %d cuts", op, made, rate, q.Core().Stats().RateCuts)
		}
		began := w.now
		a.post(qa, op, b, n)
		a.waitOK(1)
		took := time.Duration(w.now - began)
		// It is back at a quarter soon, and stays there.
		const packets = (n + 1023) / 1024
		want := time.Duration(8*4*(n+packets*cc.WireOverhead)) * time.Second / line
		if took < want || took > want+want/50 {
			t.Errorf("%v: it took %v, want %v", op, took, want)
		}
		if q.Core().Stats().RateWaits < 100 {
			t.Errorf("%v: data waited %d times", op, q.Core().Stats().RateWaits)
		}
		for w.step(w.now.Add(time.Second)) {
		}
		if at, ok := sender.e.Deadline(); ok {
			t.Errorf("%v: a timer at %d, and nothing is to be done", op, at)
		}
	}
}
