package qptest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// world is one seeded run: two nodes, a few connections between them, random
// requests both ways, a bad link, and the model of what must come out of it.
type world struct {
	sim
	seed  uint64
	rng   *rand.Rand
	p     worldParams
	pairs [][2]*side
	words []word // counters that several connections of one direction add to
	tally tally
	trace func(line string)

	placed *rand.Rand // decides about ATOMIC WRITEs and FLUSHes alone; nil if the world has none
	xrc    *xrcWorld  // nil: its connections are of RC
}

// worldParams are what a seed decides first.
type worldParams struct {
	pairs     int
	mtu       rocev2.MTU
	maxMsg    int // longest WRITE and READ
	maxSend   int // longest SEND; receives are that large
	recvDepth int
	foul      bool // losses so heavy that retries may run out
	forge     bool // corruption that the ICRC does not find: only safety is checked
	fault     faultKind
	rnrRetry  uint8
	retry     uint8
	timeout   uint8
	sqd       bool
}

// worldError is how a broken invariant ends a run.
type worldError struct{ text string }

func (w *world) fail(format string, args ...any) {
	panic(worldError{fmt.Sprintf(format, args...)})
}

// tally counts what happened, to show that the seeds reach what they should.
type tally struct {
	packets, lost, events             int
	ops                               [numKinds]int
	completed, flushed, failed        int
	retransmits, timeouts, restarts   uint64
	rnr, naks, readReplay, atomReplay uint64
	flushReplay, persisted            uint64
	kept, repairs                     uint64
	split, pairs                      uint64 // messages of split WRITEs, and of READs
	marked, cnps                      uint64
	bursts                            uint64 // packets of them
	dropDup, dropOrder, dropGhost     uint64
	virtual                           clock.Time
}

func (t *tally) add(o *tally) {
	t.packets += o.packets
	t.lost += o.lost
	t.events += o.events
	for i := range t.ops {
		t.ops[i] += o.ops[i]
	}
	t.completed += o.completed
	t.flushed += o.flushed
	t.failed += o.failed
	t.retransmits += o.retransmits
	t.timeouts += o.timeouts
	t.restarts += o.restarts
	t.rnr += o.rnr
	t.naks += o.naks
	t.readReplay += o.readReplay
	t.atomReplay += o.atomReplay
	t.flushReplay += o.flushReplay
	t.persisted += o.persisted
	t.kept += o.kept
	t.repairs += o.repairs
	t.split += o.split
	t.pairs += o.pairs
	t.marked += o.marked
	t.cnps += o.cnps
	t.bursts += o.bursts
	t.dropDup += o.dropDup
	t.dropOrder += o.dropOrder
	t.dropGhost += o.dropGhost
	t.virtual += o.virtual
}

func newWorld(seed uint64) *world { return makeWorld(seed, nil) }

func makeWorld(seed uint64, xrc *xrcWorld) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x51ed)), xrc: xrc}
	w.hooks = simHooks{sent: w.onSent, arrived: w.onArrived, dropped: w.onDropped, touched: w.onTouched, drained: w.onDrained, unexpected: w.fail,
		fetch: w.onFetch, fetched: w.onFetched}
	w.choose()
	w.choosePlaced()
	w.chooseXRC()
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		r := rand.New(rand.NewPCG(seed, uint64(i)+7))
		w.nodes[i] = &simNode{node: newNode(netip.MustParseAddr(addr), r.Uint32), rng: rand.New(rand.NewPCG(seed, uint64(i)+11)), link: w.chooseLink()}
		w.chooseMarks(i)
		w.nodes[i].store = qp.NewPool([]int{1024, 5}[w.seed>>(3+i)&1])
		if w.rng.IntN(3) == 0 {
			w.nodes[i].lag = clock.Time(w.rng.IntN(20000))
		}
	}
	for i, n := range w.nodes {
		n.peer = w.nodes[1-i]
		n.flow = rocev2.NewFlow(n.addr, n.peer.addr, 0xc000, rocev2.UDPPort)
	}
	w.words = make([]word, 2)
	for i := range w.pairs {
		w.connect(i)
	}
	return w
}

// pick returns one of the choices.
func pick[T any](rng *rand.Rand, choices ...T) T { return choices[rng.IntN(len(choices))] }

func (w *world) choose() {
	r := w.rng
	p := &w.p
	p.pairs = 1 + r.IntN(3)
	p.mtu = pick(r, rocev2.MTU256, rocev2.MTU256, rocev2.MTU256, rocev2.MTU512, rocev2.MTU1024)
	if r.IntN(12) == 0 {
		p.mtu = pick(r, rocev2.MTU2048, rocev2.MTU4096)
	}
	m := p.mtu.Bytes()
	p.maxMsg = pick(r, 64, 2*m+5, 6*m, 20*m)
	p.maxSend = min(p.maxMsg, 4*m)
	p.recvDepth = 1 + r.IntN(8)
	p.foul = r.IntN(8) == 0
	p.forge = r.IntN(16) == 0
	p.retry, p.rnrRetry = 7, 7
	if p.foul {
		p.retry, p.rnrRetry = uint8(r.IntN(8)), uint8(r.IntN(8))
	}
	p.timeout = uint8(8 + r.IntN(5)) // 1 ms to 17 ms
	p.sqd = r.IntN(6) == 0
	if r.IntN(3) == 0 && !p.forge {
		p.fault = faultKind(1 + r.IntN(int(numFaults)-1))
	}
	w.pairs = make([][2]*side, p.pairs)
}

func (w *world) chooseLink() linkParams {
	r := w.rng
	l := linkParams{delay: clock.Time(1000 + r.IntN(50000)), bitsPerSecond: pick(r, int64(10e9), 10e9, 1e9, 3e8), queue: clock.Time(r.IntN(20000)), jitter: clock.Time(1 + r.IntN(200000))}
	chance := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.Float64() * most
	}
	if r.IntN(5) == 0 {
		l.jitter *= 50 // late beyond a timeout
	}
	l.loss, l.dup, l.reorder, l.corrupt = chance(0.03), chance(0.05), chance(0.03), chance(0.01)
	if w.p.foul {
		l.loss = 0.05 + r.Float64()*0.25
	}
	if w.p.forge {
		l.forge = 0.05
	}
	return l
}

// chooseMarks has the network mark packets in a fifth of the worlds. It draws
// from numbers of its own, so that seeds that found a bug stay what they were.
func (w *world) chooseMarks(i int) {
	n := w.nodes[i]
	n.marks = rand.New(rand.NewPCG(w.seed, uint64(i)+0xece))
	if w.seed%5 == 0 {
		n.link.mark = pick(n.marks, 0, 0.01, 0.2, 1)
	}
}

// connect makes the two sides of connection i.
func (w *world) connect(i int) {
	r := w.rng
	psn := [2]rocev2.PSN{w.startPSN(), w.startPSN()}
	destRd := [2]uint8{uint8(1 + r.IntN(8)), uint8(1 + r.IntN(8))}
	pair := &w.pairs[i]
	for j, n := range w.nodes {
		qpn := rocev2.QPN(0x100 + i*16 + j)
		c := qp.Config{
			QPN: qpn, MaxSendWR: 1 + r.IntN(24), MaxRecvWR: w.p.recvDepth, MaxSendSGE: 1 + r.IntN(4), MaxRecvSGE: 1 + r.IntN(3),
			MaxInline: r.IntN(3) * 64, SignalAll: r.IntN(4) == 0,
		}
		if r.IntN(3) == 0 {
			c.ReadChunk = 1 + r.IntN(6*w.p.mtu.Bytes())
		}
		if r.IntN(3) == 0 {
			c.MinProbe = time.Duration(1 + r.IntN(3_000_000))
		}
		if r.IntN(3) == 0 {
			c.Window.MaxPSNs = 1 + r.IntN(128)
		}
		if r.IntN(4) == 0 {
			c.Window.InitialBytes = 1 + r.IntN(8*w.p.mtu.Bytes())
			c.Window.MaxBytes = c.Window.InitialBytes * (1 + r.IntN(8))
		}
		q := &simQP{on: n, qpn: qpn}
		w.halve(i, j, &c)
		w.control(2*i+j, &c)
		c.Invalidate = func(key ib.Key) ib.Fault { return q.model.invalidate(key) }
		ep, err := newEndpoint(n.node, c)
		if err != nil {
			w.fail("qp.New: %v", err)
		}
		if w.seed>>(1+j)&1 == 1 {
			ep.SetReorder(n.store)
		}
		if w.seed>>(5+j)&1 == 1 {
			q.burst = 2 + int(w.seed>>7%31)
		}
		q.endpoint = ep
		n.qps = append(n.qps, q)
		pair[j] = newSide(w, q, i, c)
		pair[j].native = w.seed>>(1+j)&1 == 1
		q.model = pair[j]
	}
	pair[0].peer, pair[1].peer = pair[1], pair[0]
	for j, s := range pair {
		s.wire = newSniffer(w, s, psn[j])
		a := ib.Attr{
			State: ib.StateRTS, Access: accessWrite | accessRead | accessAtomic | accessFlushGlobal | accessFlushPersistent, Port: 1,
			AV: ib.AddressVector{DGID: s.peer.ep.on.addr, HopLimit: 64}, PathMTU: w.p.mtu,
			Timeout: w.p.timeout, RetryCount: w.p.retry, RNRRetry: w.p.rnrRetry, MinRNRTimer: uint8(1 + r.IntN(20)),
			SQPSN: psn[j], RQPSN: psn[1-j], DestQPN: s.peer.ep.qpn,
			MaxRdAtomic: uint8(1 + r.IntN(int(destRd[1-j]))), MaxDestRdAtomic: destRd[j],
		}
		if w.beyondDepth() {
			a.MaxRdAtomic *= 3
		}
		s.rdLimit = int(a.MaxRdAtomic)
		s.connectXRC()
		if err := s.ep.connect(a); err != nil {
			w.fail("connect: %v", err)
		}
		w.push(event{at: clock.Time(r.IntN(100000)), kind: eventAct, q: s.ep})
	}
	for _, s := range pair {
		s.postRecvs()
	}
}

// beyondDepth reports whether the sides have more READs and atomics outstanding
// than agreed.
func (w *world) beyondDepth() bool { return w.seed%5 == 4 }

func (w *world) startPSN() rocev2.PSN {
	if w.rng.IntN(3) == 0 {
		return rocev2.PSN(0xffffff - w.rng.IntN(40))
	}
	return rocev2.PSN(w.rng.IntN(1 << 24))
}

const (
	maxVirtual = clock.Time(300e9) // five minutes
	maxEvents  = 2_000_000
)

// run plays the world to its end and returns what went wrong.
func (w *world) run() (err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if e, ok := r.(worldError); ok {
			err = fmt.Errorf("at %s: %s", duration(w.now), e.text)
			return
		}
		err = fmt.Errorf("at %s: panic: %v\n%s", duration(w.now), r, debug.Stack())
	}()
	for w.step(func(q *simQP) { q.model.act() }) {
		if w.events > maxEvents || w.now > maxVirtual {
			w.fail("no end after %d events", w.events)
		}
		if w.events%64 == 0 {
			w.checkGuards()
		}
	}
	w.checkGuards()
	for _, pair := range w.pairs {
		for _, s := range pair {
			s.checkEnd()
		}
	}
	if !w.p.forge {
		w.checkWords()
	}
	w.count()
	return nil
}

func (w *world) count() {
	w.tally.events, w.tally.virtual, w.tally.bursts = w.events, w.now, uint64(w.burst)
	for _, pair := range w.pairs {
		for _, s := range pair {
			st := s.ep.Stats()
			t := &w.tally
			t.retransmits += st.Retransmits
			t.timeouts += st.Timeouts
			t.restarts += st.Restarts
			t.rnr += st.RNRReceived
			t.naks += st.NAKSeqReceived
			t.readReplay += st.ReadReplays
			t.atomReplay += st.AtomicReplays
			t.flushReplay += st.FlushReplays
			t.kept += st.Reordered
			t.repairs += st.Repairs
			t.marked += st.ECNMarked
			t.cnps += st.CNPsReceived
			t.dropDup += st.Drops.Duplicate
			t.dropOrder += st.Drops.OutOfOrder
			t.dropGhost += st.Drops.Ghost
		}
	}
}

// describe says what kind of world it is, for failure messages.
func (w *world) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d connections, mtu %d, messages to %d, timeout %d, retry %d, rnr retry %d, fault %v", w.p.pairs, w.p.mtu.Bytes(), w.p.maxMsg, w.p.timeout, w.p.retry, w.p.rnrRetry, w.p.fault)
	for i, n := range w.nodes {
		l := n.link
		fmt.Fprintf(&b, "; %c loses %.3f, doubles %.3f, reorders %.3f, corrupts %.3f, forges %.3f", 'a'+i, l.loss, l.dup, l.reorder, l.corrupt, l.forge)
	}
	return b.String()
}

// The hooks.

func (w *world) onSent(q *simQP, wire []byte, lost, late bool) {
	w.tally.packets++
	if lost {
		w.tally.lost++
	}
	var p rocev2.Packet
	if err := p.Parse(wire); err != nil {
		w.fail("%s sent a packet that does not parse: %v: % x", q.model.name, err, wire)
	}
	if w.trace != nil {
		fate := map[[2]bool]string{{true, false}: "(lost)", {true, true}: "(lost)", {false, true}: "(late)"}[[2]bool{lost, late}]
		w.tracePacket(q.model, "> ", &p, fate)
	}
	if !w.p.forge {
		q.model.wire.sent(&p)
	}
}

func (w *world) onArrived(q *simQP, p *rocev2.Packet) {
	if w.trace != nil {
		w.tracePacket(q.model, "  < ", p, "")
	}
	if !w.p.forge {
		q.model.wire.arrived(p)
	}
}

func (w *world) onDropped(q *simQP, _ *rocev2.Packet, d qp.Drop) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%12d %s      drop: %v", w.now, q.model.name, d))
	}
}

func (w *world) tracePacket(s *side, dir string, p *rocev2.Packet, fate string) {
	dst := s.peer.ep.qpn
	if dir != "> " {
		dst = s.ep.qpn
	}
	w.trace(fmt.Sprintf("%12d %s%s%s %s", w.now, s.name, dir, format(p, dst, noNames{}), fate))
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf("%12d ", w.now) + fmt.Sprintf(format, args...))
	}
}

func (w *world) onTouched(q *simQP) { q.model.touched() }

func (w *world) onDrained(q *simQP) {
	q.model.drained()
	if err := q.Check(); err != nil {
		w.fail("QP %v: %v", q.qpn, err)
	}
}
