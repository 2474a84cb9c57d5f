package qp

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

const (
	testIOVA   = 0x10000000
	testAccess = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.FlushGlobal
	initMask   = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccess
	rtrMask    = ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	rtsMask    = ib.AttrState | ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrSQPSN | ib.AttrMaxRdAtomic
)

// As the halves have them.
const (
	maxRestarts  = 4 // requester
	repairRun    = 3
	repairReads  = 2
	maxGapNAKs   = 5 // responder
	nakPeriod    = clock.Time(time.Millisecond)
	fatalRepeats = 8
	rnrInfinite  = 7
	keepAge      = 256 * time.Millisecond
)

// testCQ is a sink that keeps completions in a ring without allocating.
type testCQ struct {
	wcs   []ib.WC
	n     int
	limit int // completions taken; 0 is no limit
	keep  bool
}

func (c *testCQ) Complete(w *ib.WC) bool {
	c.n++
	if c.limit > 0 && c.n > c.limit {
		return false
	}
	if c.keep {
		c.wcs = append(c.wcs, *w)
	} else if w.Status != ib.StatusSuccess {
		panic(fmt.Sprintf("completion %+v", *w))
	}
	return true
}

// testEnd is one side of a pair: a QP with a region of its own.
type testEnd struct {
	*QP
	addr   netip.Addr
	table  *memreg.Table
	pd     *memreg.PD
	mem    []byte
	mr     *memreg.Region
	sq, rq *testCQ

	bytes int  // Limit.Bytes of the polls
	first bool // acknowledgements go before requests
	delay bool // Limit.DelayAck
	buf   []byte
	n     int // length of the packet in buf
}

// poll polls one packet into buf and returns its length; 0 if there is none.
func (e *testEnd) poll(now clock.Time, buf []byte) int {
	e.buf, e.n = buf[:cap(buf)], 0
	e.bytes -= e.Poll(now, Limit{Packets: 1, Bytes: e.bytes, DelayAck: e.delay, AckFirst: e.first}, e).Bytes
	return e.n
}

func (e *testEnd) Room() []byte                                    { return e.buf }
func (e *testEnd) Commit(n int, _ *ib.AddressVector, _ PacketKind) { e.n = n }

func (e *testEnd) ackDelayed() bool { return e.delay && e.halves.resp.Owes() == OwesAck }

// handle hands a packet to e that came from src.
func (e *testEnd) handle(now clock.Time, src netip.Addr, p *rocev2.Packet) Drop {
	return e.HandlePacket(now, &Arrival{Packet: p, Src: src})
}

// handleMarked is handle with Congestion Experienced.
func (e *testEnd) handleMarked(now clock.Time, src netip.Addr, p *rocev2.Packet) Drop {
	return e.HandlePacket(now, &Arrival{Packet: p, Src: src, TrafficClass: 3})
}

// options of a pair; the zero value is a connection with depth 64 and MTU 1024.
type pairConfig struct {
	config   Config
	attr     ib.Attr
	mem      int
	noRTS    bool // leave b in RTR
	noKeepCQ bool
}

type pair struct {
	t    testing.TB
	a, b *testEnd
	now  clock.Time
	buf  []byte
	pkt  rocev2.Packet
	// drop decides what gets lost; nil is nothing.
	drop func(from *testEnd, p *rocev2.Packet) bool
	// late takes a fetch that is to be done later; nil is none.
	late func(e *testEnd, f Fetch) bool
	idle func() bool // reports that there is more to do before time passes; nil is never
	log  []string    // opcodes and PSNs on the wire, if tracing
	trac bool

	batches bool // poll many packets before they are carried, as a driver does
	bursts  bool // and in one Poll
	train   trainList
}

// trainList takes a batch without allocating.
type trainList struct {
	bufs [64][]byte
	lens [64]int
	n    int
}

func (l *trainList) Room() []byte {
	if l.n == len(l.bufs) {
		return nil
	}
	if l.bufs[l.n] == nil {
		l.bufs[l.n] = make([]byte, rocev2.MaxPacketLen)
	}
	return l.bufs[l.n]
}

func (l *trainList) Commit(n int, _ *ib.AddressVector, _ PacketKind) {
	l.lens[l.n] = n
	l.n++
}

func newPair(t testing.TB, c pairConfig) *pair {
	t.Helper()
	if c.config.MaxSendWR == 0 {
		c.config.MaxSendWR, c.config.MaxRecvWR = 64, 64
	}
	if c.config.MaxSendSGE == 0 {
		c.config.MaxSendSGE, c.config.MaxRecvSGE = 4, 4
	}
	if c.mem == 0 {
		c.mem = 1 << 18
	}
	a := c.attr
	a.Port = 1
	def(&a.PathMTU, rocev2.MTU1024)
	def(&a.Timeout, 14)
	def(&a.RetryCount, 7)
	def(&a.RNRRetry, 7)
	def(&a.MinRNRTimer, 12)
	def(&a.MaxRdAtomic, 4)
	def(&a.MaxDestRdAtomic, 4)
	def(&a.Access, testAccess)
	def(&a.SQPSN, 0xfffffe)
	def(&a.RQPSN, a.SQPSN)
	p := &pair{t: t, buf: make([]byte, rocev2.MaxPacketLen)}
	p.a = newEnd(t, 1, c)
	p.b = newEnd(t, 2, c)
	p.connect(p.a, p.b, a, true)
	p.connect(p.b, p.a, a, !c.noRTS)
	return p
}

// dataOpcodes returns the operations that move data, which FLUSH does not.
func dataOpcodes() []ib.Opcode {
	return slices.DeleteFunc(ib.Opcodes(), func(op ib.Opcode) bool { return op == ib.OpFlush || op.Is(ib.OpLocal) })
}

// sizeOf returns how many bytes a request of an operation has in a test that
// wants n.
func sizeOf(op ib.Opcode, n int) int {
	switch {
	case op.Is(ib.OpAtomic) || op == ib.OpAtomicWrite:
		return 8
	case op == ib.OpFlush:
		return 0
	}
	return n
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func newEnd(t testing.TB, i byte, c pairConfig) *testEnd {
	t.Helper()
	e := &testEnd{bytes: math.MaxInt, addr: netip.AddrFrom4([4]byte{10, 0, 0, i}), sq: &testCQ{keep: !c.noKeepCQ}, rq: &testCQ{keep: !c.noKeepCQ}}
	r := rand.New(rand.NewPCG(uint64(i), 1))
	e.table = memreg.NewTable(r.Uint32)
	e.pd = e.table.AllocPD()
	e.mem = make([]byte, c.mem)
	for b := e.mem; len(b) >= 8; b = b[8:] {
		binary.NativeEndian.PutUint64(b, r.Uint64())
	}
	var err error
	e.mr, err = e.table.Register(e.pd, memreg.Local(e.mem), memreg.Options{Access: testAccess, Base: memreg.BaseIOVA, IOVA: testIOVA})
	must(t, err)
	cfg := c.config
	cfg.QPN = rocev2.QPN(0x10 + uint32(i))
	def(&cfg.Type, ib.RC)
	cfg.PortMTU = rocev2.MTU1024
	cfg.Memory, cfg.PD, cfg.SendCQ, cfg.RecvCQ = e.table, e.pd, e.sq, e.rq
	e.QP, err = New(cfg)
	must(t, err)
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *pair) connect(e, peer *testEnd, a ib.Attr, rts bool) {
	p.t.Helper()
	a.AV.DGID, a.DestQPN = peer.addr, peer.QPN()
	a.State = ib.StateInit
	must(p.t, e.Modify(&a, initMask))
	a.State = ib.StateRTR
	must(p.t, e.Modify(&a, rtrMask))
	if rts {
		a.State = ib.StateRTS
		must(p.t, e.Modify(&a, rtsMask))
	}
}

func (p *pair) peer(e *testEnd) *testEnd {
	if e == p.a {
		return p.b
	}
	return p.a
}

// transfer brings up to max packets from one side to the other and returns how
// many were sent.
func (p *pair) transfer(from *testEnd, max int) int {
	if p.batches || p.bursts {
		return p.transferBatch(from, max)
	}
	for i := range max {
		n := from.poll(p.now, p.buf[:0])
		if n == 0 {
			return i
		}
		p.carry(from, p.buf, n)
	}
	return max
}

// transferBatch is transfer of what fits into a batch.
func (p *pair) transferBatch(from *testEnd, max int) int {
	l := &p.train
	for l.n = 0; l.n < max; {
		room := l.Room()
		if room == nil {
			break
		}
		if p.bursts {
			polled := from.Poll(p.now, Limit{Packets: max, Bytes: from.bytes, DelayAck: from.delay, AckFirst: from.first}, l)
			from.bytes -= polled.Bytes
			break
		}
		n := from.poll(p.now, room)
		if n == 0 {
			break
		}
		l.Commit(n, nil, OrdinaryPacket)
	}
	for i := range l.n {
		p.carry(from, l.bufs[i], l.lens[i])
	}
	return l.n
}

// carry brings a packet of n bytes to the other side.
func (p *pair) carry(from *testEnd, buf []byte, n int) {
	b := buf[:n+rocev2.ICRCLen]
	if err := p.pkt.Parse(b); err != nil {
		p.t.Fatalf("sent an unreadable packet: %v: % x", err, b)
	}
	if p.trac {
		p.log = append(p.log, fmt.Sprintf("%v %v", p.pkt.BTH.Opcode, p.pkt.BTH.PSN))
	}
	if p.drop != nil && p.drop(from, &p.pkt) {
		return
	}
	p.peer(from).handle(p.now, from.addr, &p.pkt)
}

// run exchanges packets until both sides are silent. Time stands still.
func (p *pair) run() {
	for range 1 << 20 {
		if p.transfer(p.a, 16)+p.transfer(p.b, 16)+p.fetch(p.a)+p.fetch(p.b) == 0 {
			return
		}
	}
	p.t.Fatal("the exchange does not end")
}

// fetch fetches the pages that a side waits for, and returns how often.
func (p *pair) fetch(e *testEnd) (n int) {
	for f, ok := e.PollFetch(); ok; f, ok = e.PollFetch() {
		if p.late != nil && p.late(e, f) {
			continue
		}
		f.Fault = f.Fetch()
		e.Fetched(p.now, f)
		n++
	}
	return n
}

// settle runs and lets time pass until no timer is set.
func (p *pair) settle() {
	p.t.Helper()
	for range 10000 {
		p.run()
		if p.idle != nil && p.idle() {
			continue
		}
		at, ok := p.a.Deadline()
		bt, bok := p.b.Deadline()
		switch {
		case !ok && !bok:
			return
		case !ok || bok && bt < at:
			at = bt
		}
		p.now = max(p.now, at)
		p.a.HandleTimeout(p.now)
		p.b.HandleTimeout(p.now)
	}
	p.t.Fatal("timers do not end")
}

func (e *testEnd) sge(off, n int) []ib.SGE { return []ib.SGE{e.mr.SGE(uint64(off), uint32(n))} }

func (e *testEnd) remote(off int) ib.RemoteAddr {
	return ib.RemoteAddr{Addr: e.mr.Addr() + uint64(off), RKey: e.mr.RKey()}
}

// statuses returns and forgets the completions as text.
func (c *testCQ) statuses() string {
	s := ""
	for i, w := range c.wcs {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d %v", w.ID, w.Status)
	}
	c.wcs = c.wcs[:0]
	return s
}
