package engine

import (
	"container/heap"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// world is a network of engines in virtual time: one queue of events, no
// goroutine.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	now    clock.Time
	delay  time.Duration // of every packet
	rate   int64         // of every link, bits per second; 0: no limit
	loss   float64       // of every packet
	events eventHeap
	seq    uint64
	hosts  map[netip.Addr]*host
	places bool                                                       // links receive payloads where they belong
	placed int                                                        // packets of which they did
	sorts  map[rocev2.Opcode]bool                                     // of those
	look   func()                                                     // after every receive
	alone  bool                                                       // packets are received one by one
	change func(h *host, p []transport.RxPacket) []transport.RxPacket // what arrives
	note   func(format string, args ...any)                           // of all that happens
	tx     *transport.TxBatch                                         // one for all
}

// event is packets that arrive at a host, or the time of its timer.
type event struct {
	at      clock.Time
	seq     uint64 // of equal times the first comes first
	to      *host
	packets []transport.RxPacket
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = event{}
	*h = (*h)[:len(*h)-1]
	return last
}

func newWorld(t testing.TB, seed uint64) *world {
	return &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), now: 1, delay: time.Millisecond,
		hosts: map[netip.Addr]*host{}, sorts: map[rocev2.Opcode]bool{}, tx: transport.NewTxBatch(160 << 10),
	}
}

// host is an engine with what a test needs on it.
type host struct {
	w       *world
	addr    netip.Addr
	e       *Engine
	table   *memreg.Table
	pd      *memreg.PD
	mr      *memreg.Region
	mem     []byte
	done    []ib.WC // completions that no test has looked at
	full    bool    // its completion queues are
	events  []ib.Event
	held    bool // it sends nothing by itself
	timerAt clock.Time
	free    clock.Time // when its link has sent what it was given
	mtu     rocev2.MTU // of what it connects; 0 is 1024
	slow    bool       // what it connects has a timeout of 8 s, not 67 ms
	strict  bool       // and no retries, not 7
	psn     rocev2.PSN // that what it connects begins with
}

// Complete implements qp.CompletionSink.
func (h *host) Complete(c *ib.WC) bool {
	h.done = append(h.done, *c)
	if h.w.note != nil {
		h.w.note("%v completes %+v", h.addr, *c)
	}
	return !h.full
}

// Event implements Sink.
func (h *host) Event(_ *QP, e ib.Event) {
	h.events = append(h.events, e)
	if h.w.note != nil {
		h.w.note("%v: event %v", h.addr, e)
	}
}

// Fetch implements Sink.
func (h *host) Fetch(*QP, qp.Fetch) {}

// addrOf returns the address of a host by its number.
func addrOf(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// newHost adds a host with a region of size bytes.
func (w *world) newHost(c Config, size int) *host {
	w.t.Helper()
	h := &host{w: w, addr: addrOf(len(w.hosts))}
	h.table = memreg.NewTable(w.rng.Uint32)
	h.pd = h.table.AllocPD()
	h.mem = make([]byte, size)
	var err error
	h.mr, err = h.table.Register(h.pd, memreg.Local(h.mem),
		memreg.Options{Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic})
	w.must(err)
	c.Addr, c.Memory, c.Random, c.Sink = h.addr, h.table, w.rng.Uint32, h
	h.e = New(c)
	w.hosts[h.addr] = h
	return h
}

// newPair adds two hosts.
func (w *world) newPair(c Config) (a, b *host) {
	w.t.Helper()
	return w.newHost(c, 1<<20), w.newHost(c, 1<<20)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (h *host) newQP() *QP {
	h.w.t.Helper()
	q, err := h.e.CreateQP(qp.Config{PD: h.pd, SendCQ: h, RecvCQ: h, MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}, nil)
	h.w.must(err)
	return q
}

func (h *host) modify(q *QP, a ib.Attr, mask ib.AttrMask) {
	h.w.t.Helper()
	h.w.must(h.e.Modify(q, &a, mask))
	h.transmit()
}

// connect brings q into RTS.
func (h *host) connect(q *QP, av ib.AddressVector, qpn rocev2.QPN) {
	h.w.t.Helper()
	h.modify(q, ib.Attr{State: ib.StateInit, Port: 1, Access: ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic},
		ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccess)
	mtu := h.mtu
	if mtu == 0 {
		mtu = rocev2.MTU1024
	}
	h.modify(q, ib.Attr{State: ib.StateRTR, AV: av, PathMTU: mtu, DestQPN: qpn, RQPSN: h.psn, MaxDestRdAtomic: 16},
		ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer)
	timeout := uint8(14)
	if h.slow {
		timeout = 21
	}
	retries := uint8(7)
	if h.strict {
		retries = 0
	}
	h.modify(q, ib.Attr{State: ib.StateRTS, Timeout: timeout, RetryCount: retries, RNRRetry: 7, SQPSN: h.psn, MaxRdAtomic: 16},
		ib.AttrState|ib.AttrTimeout|ib.AttrRetryCount|ib.AttrRNRRetry|ib.AttrSQPSN|ib.AttrMaxRdAtomic)
}

// connectPair makes a queue pair on each of a and b and connects them.
func connectPair(a, b *host, native bool) (qa, qb *QP) {
	a.w.t.Helper()
	qa, qb = a.newQP(), b.newQP()
	a.connect(qa, ib.AddressVector{DGID: b.addr, Native: native}, qb.QPN())
	b.connect(qb, ib.AddressVector{DGID: a.addr, Native: native}, qa.QPN())
	return qa, qb
}

// connectNobody makes a queue pair whose peer is not there.
func (h *host) connectNobody(to *host) *QP {
	h.w.t.Helper()
	q := h.newQP()
	h.connect(q, ib.AddressVector{DGID: to.addr}, 0xfffff0)
	return q
}

// post posts a request between the regions of h and to.
func (h *host) post(q *QP, op ib.Opcode, to *host, n uint32) {
	h.w.t.Helper()
	_, err := h.e.PostSend(q, []ib.SendWR{{Opcode: op, Signaled: true, SGList: []ib.SGE{h.mr.SGE(0, n)},
		Remote: ib.RemoteAddr{Addr: to.mr.Addr(), RKey: to.mr.RKey()}}})
	h.w.must(err)
	h.transmit()
}

func (h *host) write(q *QP, to *host, n uint32) { h.w.t.Helper(); h.post(q, ib.OpWrite, to, n) }

func (h *host) destroy(q *QP) {
	h.e.Destroy(q)
	h.transmit()
}

// transmit sends what the engine has to send, and sets its timer.
func (h *host) transmit() {
	for !h.held && h.e.Pending() {
		h.w.tx.Reset()
		h.e.Fill(h.w.now, h.w.tx, AllClasses)
		h.w.send(h)
	}
	if at, ok := h.e.Deadline(); ok && (h.timerAt == 0 || at < h.timerAt) {
		h.timerAt = at
		h.w.push(event{at: at, to: h})
	}
}

func (w *world) push(e event) {
	w.seq++
	e.seq = w.seq
	heap.Push(&w.events, e)
}

// send puts the batch on the way. What goes to one host arrives there together.
func (w *world) send(from *host) {
	if w.rate > 0 {
		from.free = max(from.free, w.now).Add(time.Duration(int64(w.tx.Bytes()) * 8e9 / w.rate))
	}
	at := max(from.free, w.now).Add(w.delay)
	arena := make([]byte, 0, w.tx.Bytes())
	var run event
	for i := range w.tx.Len() {
		data, path := w.tx.Packet(i)
		if w.note != nil {
			w.note("%v sends %d bytes %x to %v", from.addr, len(data), crc32.ChecksumIEEE(data), path.Dst)
		}
		to := w.hosts[path.Dst]
		if to == nil || w.loss > 0 && w.rng.Float64() < w.loss {
			continue
		}
		if run.to != to {
			w.pushRun(run)
			run = event{at: at, to: to}
		}
		start := len(arena)
		arena = append(append(arena, data...), 0, 0, 0, 0)
		run.packets = append(run.packets, transport.RxPacket{Data: arena[start:len(arena):len(arena)], Src: from.addr, Dst: to.addr,
			SrcPort: max(path.SrcPort, rocev2.UDPPort), TrafficClass: path.TrafficClass, ICRC: transport.ICRCVerified})
	}
	w.pushRun(run)
}

func (w *world) pushRun(e event) {
	if len(e.packets) > 0 {
		w.push(e)
	}
}

// step does the next event. It reports false when there is none by the time
// end.
func (w *world) step(end clock.Time) bool {
	if len(w.events) == 0 || w.events[0].at > end {
		return false
	}
	e := heap.Pop(&w.events).(event)
	w.now = max(w.now, e.at)
	h := e.to
	if e.packets != nil {
		h.receive(e.packets)
	} else {
		if h.timerAt == e.at {
			h.timerAt = 0
		}
		h.e.Advance(w.now)
	}
	h.transmit()
	return true
}

// sleep lets time pass.
func (w *world) sleep(d time.Duration) {
	end := w.now.Add(d)
	for w.step(end) {
	}
	w.now = end
}

// waitOK waits for n successful completions of h.
func (h *host) waitOK(n int) {
	h.w.t.Helper()
	h.wait(n)
	for _, c := range h.done[:n] {
		if c.Status != ib.StatusSuccess {
			h.w.t.Fatalf("completion %v", c)
		}
	}
	h.done = h.done[n:]
}

// wait waits until h has n completions.
func (h *host) wait(n int) {
	h.w.t.Helper()
	for len(h.done) < n {
		if !h.w.step(1 << 62) {
			h.w.t.Fatalf("%d of %d completions, and nothing goes on", len(h.done), n)
		}
	}
}

// forge hands q a packet as though from its peer's address and a UDP port.
func (h *host) forge(q *QP, src netip.Addr, port uint16, op rocev2.Opcode, psn rocev2.PSN) Ready {
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PKey: rocev2.DefaultPKey, DestQPN: q.QPN(), PSN: psn}}
	d := transport.RxPacket{Data: append(p.AppendTo(nil), make([]byte, rocev2.ICRCLen)...), Src: src, Dst: h.addr,
		SrcPort: port, ICRC: transport.ICRCVerified}
	r := h.e.Receive(h.w.now, []transport.RxPacket{d})
	h.transmit()
	return r
}

// nextTurns fills a batch, which is not sent, and returns the bytes of each
// queue pair in it by the number of its peer.
func (h *host) nextTurns() map[rocev2.QPN]int {
	h.w.tx.Reset()
	h.e.Fill(h.w.now, h.w.tx, AllClasses)
	bytes := map[rocev2.QPN]int{}
	for i := range h.w.tx.Len() {
		data, _ := h.w.tx.Packet(i)
		var p rocev2.Packet
		h.w.must(p.Parse(append(data[:len(data):len(data)], 0, 0, 0, 0)))
		bytes[p.BTH.DestQPN] += len(data)
	}
	return bytes
}
