package engine

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// victim is an engine under attack, with queue pairs of every kind in every
// state, most of them at work. After each datagram its invariants are checked.
type victim struct {
	*host
	t    testing.TB
	qps  []*QP
	want map[rocev2.QPN]map[uint64]bool // IDs of requests that have not completed
	id   uint64

	granted *memreg.Region // for the peer
	ending  *memreg.Region // whose rkey the peer may end
	own     *memreg.Region // receives, and what READs bring
	windows []*memreg.Window
	shared  victimSRQ
	xrc     victimSRQ // of the XRC domain
	slot    int       // of own, the next free one
	frozen  []frozen
	events  int
}

// frozen is memory that nothing that arrives may change.
type frozen struct {
	what string
	mem  []byte
	was  []byte
}

// Parts of a victim's memory. Around each of them is memory of no region.
const (
	victimPart  = 8 << 10
	victimGap   = 256
	victimSlot  = 704 // of a receive or READ: more than two packets
	victimSlots = 128
	victimMTU   = 256
	victimPSN   = 5000 // that all queue pairs expect, and send first
	victimQKey  = 0x11111111
	victimSRQN  = 0x1234

	victimRights = ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.FlushGlobal
)

var (
	victimPeer  = netip.MustParseAddr("10.0.0.66")
	victimPeer6 = netip.MustParseAddr("fd00::66")
)

// recvID marks the IDs of receives.
const recvID = 1 << 63

// victimSRQ is a shared receive queue.
type victimSRQ struct {
	ring qp.SRQ
	want map[uint64]bool // IDs of receives that have not completed
}

// Next implements qp.RecvSource.
func (s *victimSRQ) Next(r *qp.Recv) bool { ok, _ := s.ring.Next(r); return ok }

// victimKind is a kind of queue pair.
type victimKind struct {
	typ    ib.QPType
	state  ib.State
	busy   bool // has requests outstanding
	native bool
	self   bool // its peer is the victim itself
}

// victimShared is the first of victimKinds that takes its receives from the
// shared receive queue.
const victimShared = 27

// victimKinds are the queue pairs of a victim.
var victimKinds = []victimKind{
	{ib.RC, ib.StateRTS, false, false, false},
	{ib.RC, ib.StateRTS, true, false, false},
	{ib.RC, ib.StateRTS, false, true, false},
	{ib.RC, ib.StateRTS, true, true, false},
	{ib.RC, ib.StateRTS, true, false, true},
	{ib.RC, ib.StateReset, false, false, false},
	{ib.RC, ib.StateInit, false, false, false},
	{ib.RC, ib.StateRTR, false, false, false},
	{ib.RC, ib.StateSQD, true, false, false},
	{ib.RC, ib.StateErr, true, false, false},

	{ib.UC, ib.StateRTS, false, false, false},
	{ib.UC, ib.StateRTS, true, true, false},
	{ib.UC, ib.StateRTS, true, false, true},
	{ib.UC, ib.StateInit, false, false, false},
	{ib.UC, ib.StateRTR, false, false, false},
	{ib.UC, ib.StateSQD, true, false, false},
	{ib.UC, ib.StateSQE, true, false, false},
	{ib.UC, ib.StateErr, true, false, false},

	{ib.UD, ib.StateRTS, true, false, false},
	{ib.UD, ib.StateRTS, true, false, true},
	{ib.UD, ib.StateReset, false, false, false},
	{ib.UD, ib.StateInit, false, false, false},
	{ib.UD, ib.StateRTR, false, false, false},
	{ib.UD, ib.StateSQD, true, false, false},
	{ib.UD, ib.StateSQE, true, false, false},
	{ib.UD, ib.StateErr, true, false, false},
	{ib.GSI, ib.StateRTS, true, false, false},

	{ib.RC, ib.StateRTS, false, false, false}, // victimShared
	{ib.RC, ib.StateRTS, true, true, false},
	{ib.RC, ib.StateErr, true, false, false},
	{ib.UC, ib.StateRTS, false, false, false},
	{ib.UD, ib.StateRTS, false, false, false},

	{ib.XRCTarget, ib.StateRTS, false, false, false},
	{ib.XRCTarget, ib.StateRTS, false, true, false},
	{ib.XRCTarget, ib.StateRTR, false, false, false},
	{ib.XRCTarget, ib.StateErr, false, false, false},
	{ib.XRCInitiator, ib.StateRTS, true, false, false},
	{ib.XRCInitiator, ib.StateRTS, true, true, false},
	{ib.XRCInitiator, ib.StateErr, true, false, false},
}

// SRQ implements qp.XRCDomain: the victim's domain has one queue.
func (p *victim) SRQ(number uint32) (qp.RecvSource, *memreg.PD) {
	if number != victimSRQN {
		return nil, nil
	}
	return &p.xrc, p.pd
}

func newVictim(t testing.TB) *victim {
	w := newWorld(t, 7)
	p := &victim{t: t, want: map[rocev2.QPN]map[uint64]bool{}}
	h := &host{w: w, addr: addrOf(1), table: memreg.NewTable(w.rng.Uint32)}
	h.pd = h.table.AllocPD()
	p.host = h
	p.register()
	h.e = New(Config{Addr: h.addr, Memory: h.table, Random: w.rng.Uint32, Sink: p, Loopback: true})
	p.shared.want = map[uint64]bool{}
	p.shared.ring.Init(16, 1, p.pd, nil)
	p.xrc.want = map[uint64]bool{}
	p.xrc.ring.Init(16, 1, p.pd, p)
	for range 6 {
		p.share(&p.shared)
		p.share(&p.xrc)
	}
	for _, k := range victimKinds {
		av := ib.AddressVector{DGID: victimPeer, Native: k.native}
		if k.self {
			av.DGID = h.addr
		}
		p.add(k.typ, k.state, av, k.busy)
	}
	p.pump()
	p.bind(p.qps[0])
	p.bind(p.qps[1])
	return p
}

// bind binds a window of each type to what is granted, for q and for the
// domain. The peer knows their keys.
func (p *victim) bind(q *QP) {
	for _, typ := range []ib.MWType{ib.MWType1, ib.MWType2} {
		w, err := p.table.AllocWindow(p.pd, typ)
		p.w.must(err)
		b := ib.BindMW{Window: w.RKey(), NewKey: w.RKey() ^ 1, Region: p.granted.LKey(), Addr: p.granted.Addr() + 1024, Length: 2048,
			Access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic}
		if f := p.table.Bind(p.pd, q.QPN(), &b); f != ib.FaultNone {
			p.t.Fatalf("bind a window: %v", f)
		}
		p.windows = append(p.windows, w)
	}
}

// register makes the regions: two of the queue pairs' domain, one of them for
// reading, and one of another domain.
func (p *victim) register() {
	const parts = 4
	step := victimPart + victimGap
	size := victimGap + parts*step + victimSlots*victimSlot + victimGap
	p.mem = make([]byte, size)
	for i := range p.mem {
		p.mem[i] = byte(i * 7)
	}
	region := func(pd *memreg.PD, at, n int, a ib.Access) *memreg.Region {
		mr, err := p.table.Register(pd, memreg.Local(p.mem[at:at+n:at+n]), memreg.Options{Access: a})
		p.w.must(err)
		return mr
	}
	var err error
	p.ending, err = p.table.Register(p.pd, memreg.Local(make([]byte, 8)), memreg.Options{Invalidatable: true})
	p.w.must(err)
	all := ib.LocalWrite | ib.MWBind | victimRights
	p.granted = region(p.pd, victimGap, victimPart, all)
	region(p.pd, victimGap+step, victimPart, ib.RemoteRead)
	region(p.table.AllocPD(), victimGap+2*step, victimPart, all)
	region(p.pd, victimGap+3*step, victimPart, ib.LocalWrite) // nothing is posted for it
	p.own = region(p.pd, victimGap+parts*step, victimSlots*victimSlot, ib.LocalWrite)
	p.freeze("memory before the regions", 0, victimGap)
	p.freeze("memory for reading, of others, or of the program", victimGap+victimPart, victimGap+parts*step)
	p.freeze("memory after the regions", size-victimGap, size)
}

func (p *victim) freeze(what string, from, to int) {
	p.frozen = append(p.frozen, frozen{what, p.mem[from:to], bytes.Clone(p.mem[from:to])})
}

// Complete implements qp.CompletionSink.
func (p *victim) Complete(c *ib.WC) bool {
	left := p.want[c.QPN]
	for _, s := range []*victimSRQ{&p.shared, &p.xrc} {
		if s.want[c.ID] {
			left = s.want
		}
	}
	if !left[c.ID] {
		p.t.Fatalf("%v: nothing was posted for this completion", c)
	}
	delete(left, c.ID)
	if c.Status == ib.StatusSuccess && c.ID&recvID != 0 && c.Opcode == ib.WCRecv && c.ByteLen > victimSlot {
		p.t.Fatalf("%v: more than the buffer has", c)
	}
	return true
}

// Event implements Sink.
func (p *victim) Event(*QP, ib.Event) { p.events++ }

// Fetch implements Sink.
func (p *victim) Fetch(*QP, qp.Fetch) {}

// room returns the next slot; the memory of slots is used once.
func (p *victim) room() ib.SGE {
	s := ib.SGE{Addr: p.own.Addr() + uint64(p.slot*victimSlot), Length: victimSlot, LKey: p.own.LKey()}
	p.slot++
	return s
}

func (p *victim) post(q *QP, wr ib.SendWR) {
	p.id++
	wr.ID, wr.Signaled, wr.RemoteSRQN = p.id, true, victimSRQN
	p.want[q.QPN()][wr.ID] = true
	if _, err := p.e.PostSend(q, []ib.SendWR{wr}); err != nil {
		p.t.Fatalf("post %v: %v", wr.Opcode, err)
	}
}

// share posts a receive to a shared receive queue.
func (p *victim) share(s *victimSRQ) {
	if p.slot == victimSlots {
		return
	}
	p.id++
	id := p.id | recvID
	if s.ring.Post(&ib.RecvWR{ID: id, SGList: []ib.SGE{p.room()}}) == nil {
		s.want[id] = true
	}
}

func (p *victim) receive(q *QP) {
	if p.slot == victimSlots {
		return
	}
	p.id++
	id := p.id | recvID
	p.want[q.QPN()][id] = true
	if _, err := p.e.PostRecv(q, []ib.RecvWR{{ID: id, SGList: []ib.SGE{p.room()}}}); err != nil {
		delete(p.want[q.QPN()], id) // full, or the state
	}
}

// add makes a queue pair and takes it to a state.
func (p *victim) add(typ ib.QPType, state ib.State, av ib.AddressVector, busy bool) {
	c := qp.Config{Type: typ, PD: p.pd, SendCQ: p, RecvCQ: p, MaxSendWR: 8, MaxRecvWR: 8, PortMTU: rocev2.MTU1024}
	switch {
	case typ == ib.XRCTarget:
		c = qp.Config{Type: typ, Domain: p}
	case typ == ib.XRCInitiator:
		c.RecvCQ = nil
	case len(p.qps) >= victimShared:
		c.RecvSource = &p.shared
	}
	q, err := p.e.CreateQP(c, nil)
	p.w.must(err)
	p.qps = append(p.qps, q)
	if typ == ib.UD {
		p.e.Attach(q, testGroup)
	}
	p.want[q.QPN()] = map[uint64]bool{}
	if state == ib.StateReset {
		return
	}
	p.init(q, typ)
	for range 3 {
		p.receive(q)
	}
	if state == ib.StateInit {
		return
	}
	p.connectTo(q, typ, av, state)
	if busy {
		p.work(q, typ, av)
	}
	switch state {
	case ib.StateSQD, ib.StateErr:
		p.modify(q, ib.Attr{State: state}, ib.AttrState)
	case ib.StateSQE:
		p.pump()
		p.post(q, p.sends(typ, av, []ib.SGE{{Addr: 1, Length: 1, LKey: p.own.LKey() + 1}})[0])
		p.pump()
		if q.Core().State() != ib.StateSQE {
			p.t.Fatalf("a %v queue pair is in %v after a send of memory of no region", typ, q.Core().State())
		}
	}
}

func (p *victim) modify(q *QP, a ib.Attr, mask ib.AttrMask) {
	p.t.Helper()
	if err := p.e.Modify(q, &a, mask); err != nil {
		p.t.Fatal(err)
	}
}

func (p *victim) init(q *QP, typ ib.QPType) {
	a := ib.Attr{State: ib.StateInit, Port: 1, QKey: victimQKey, Access: victimRights}
	mask := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess
	switch typ {
	case ib.UD:
		mask ^= ib.AttrAccess | ib.AttrQKey
	case ib.GSI:
		mask ^= ib.AttrAccess | ib.AttrQKey | ib.AttrPort
	}
	p.modify(q, a, mask)
}

// connectTo takes q to RTR, and to RTS if it goes farther.
func (p *victim) connectTo(q *QP, typ ib.QPType, av ib.AddressVector, state ib.State) {
	a := ib.Attr{State: ib.StateRTR, AV: av, PathMTU: rocev2.MTU256, DestQPN: q.QPN() ^ 1, RQPSN: victimPSN, MaxDestRdAtomic: 4}
	rtr, rts := ib.AttrState, ib.AttrState|ib.AttrSQPSN
	if av.DGID == p.addr {
		a.DestQPN = q.QPN()
	}
	if typ.Service() != rocev2.ServiceUD {
		rtr |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	}
	if typ == ib.RC || typ == ib.XRCTarget {
		rtr |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	}
	if typ == ib.RC || typ == ib.XRCInitiator {
		rts |= ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxRdAtomic
	}
	if typ == ib.RC || typ.Service() == rocev2.ServiceXRC {
		rts |= ib.AttrTimeout
	}
	p.modify(q, a, rtr)
	if state != ib.StateRTR {
		p.modify(q, ib.Attr{State: ib.StateRTS, SQPSN: victimPSN, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 4}, rts)
	}
}

// sends makes SENDs, with and without immediate data.
func (p *victim) sends(typ ib.QPType, av ib.AddressVector, from []ib.SGE) []ib.SendWR {
	wrs := []ib.SendWR{{Opcode: ib.OpSend, SGList: from}, {Opcode: ib.OpSendImm, SGList: from}}
	if typ.Service() == rocev2.ServiceUD {
		h := &ib.AddressHandle{Domain: p.pd}
		h.SetVector(&av)
		for i := range wrs {
			wrs[i].AH, wrs[i].RemoteQPN, wrs[i].RemoteQKey = h, p.qps[len(p.qps)-1].QPN(), 1<<31
		}
	}
	return wrs
}

// work posts requests of all kinds that the type has.
func (p *victim) work(q *QP, typ ib.QPType, av ib.AddressVector) {
	remote := ib.RemoteAddr{Addr: p.granted.Addr(), RKey: p.granted.RKey()}
	from := []ib.SGE{{Addr: p.granted.Addr(), Length: victimSlot, LKey: p.granted.LKey()}}
	to := []ib.SGE{p.room()}
	word := []ib.SGE{{Addr: to[0].Addr, Length: 8, LKey: to[0].LKey}}
	for _, wr := range p.sends(typ, av, from) {
		p.post(q, wr)
	}
	if typ.Service() == rocev2.ServiceUD {
		return
	}
	p.post(q, ib.SendWR{Opcode: ib.OpWrite, SGList: from, Remote: remote})
	if typ != ib.RC && typ != ib.XRCInitiator {
		return
	}
	p.post(q, ib.SendWR{Opcode: ib.OpRead, SGList: to, Remote: remote})
	p.post(q, ib.SendWR{Opcode: ib.OpFetchAdd, SGList: word, Remote: remote})
}

// Bounds of what one datagram may cause.
const (
	// The most is a go-back of what is in flight together with the answer
	// to a READ of all that is granted, for the queue pair and for the one
	// that is its own peer.
	victimPackets = 4 * (2*victimPart/victimMTU + 128)
	victimFills   = 4 * victimPackets
)

// pump takes what the engine has to send, and throws it away. What goes to the
// engine itself passes inside.
func (p *victim) pump() (sent int) {
	for n := 0; p.e.Pending(); n++ {
		p.w.tx.Reset()
		f := p.e.Fill(p.w.now, p.w.tx, AllClasses)
		sent += p.w.tx.Len()
		if len(f.Misrouted) > 0 {
			p.t.Fatal("a packet of another shard, and there is none")
		}
		if n > victimFills {
			p.t.Fatal("it sends without end")
		}
	}
	return sent
}

// take hands the engine one datagram and checks what must hold afterwards.
func (p *victim) take(d transport.RxPacket) {
	p.w.now = p.w.now.Add(10 * time.Microsecond)
	before := bytes.Clone(d.Data)
	r := p.e.Receive(p.w.now, []transport.RxPacket{d})
	if !bytes.Equal(before, d.Data) {
		p.t.Fatal("the datagram was changed")
	}
	if len(r.Misrouted) > 0 {
		p.t.Fatal("a packet of another shard, and there is none")
	}
	if sent := p.pump(); sent > victimPackets {
		p.t.Fatalf("one datagram was answered with %d packets", sent)
	}
	p.check()
}

// check checks what holds at any moment.
func (p *victim) check() {
	for _, f := range p.frozen {
		if !bytes.Equal(f.mem, f.was) {
			p.t.Fatalf("%s has changed", f.what)
		}
	}
	for _, q := range p.qps {
		if err := q.Core().Check(); err != nil {
			p.t.Fatalf("queue pair %v, %v %v: %v", q.QPN(), q.Core().Type(), q.Core().State(), err)
		}
	}
	u := p.e.Usage()
	if u.QPs != len(p.qps) || u.Peers > len(p.qps) || u.Final > 2*len(p.qps) || u.Timers > 64*len(p.qps) || u.InFlight < 0 || u.Silent < 0 {
		p.t.Fatalf("the engine holds %+v", u)
	}
}

// end closes everything. What was posted to a queue pair in ERR has completed.
func (p *victim) end() {
	for _, q := range p.qps {
		if q.Core().State() != ib.StateReset {
			p.modify(q, ib.Attr{State: ib.StateErr}, ib.AttrState)
			if n := len(p.want[q.QPN()]); n > 0 {
				p.t.Fatalf("queue pair %v in ERR: %d requests have not completed", q.QPN(), n)
			}
		}
		p.e.Destroy(q)
	}
	p.pump()
	if u := p.e.Usage(); u.QPs != 0 || u.InFlight != 0 || u.Sending != 0 || u.Limited != 0 || u.Delayed != 0 || u.Peers != 0 {
		p.t.Fatalf("after the last queue pair is gone, the engine holds %+v", u)
	}
}
