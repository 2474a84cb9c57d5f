package qptest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// sharedWorld is a seeded world in which queue pairs of all services take from
// one shared receive queue, which has fewer receives than there are messages,
// over a network that loses, doubles and reorders packets.
type sharedWorld struct {
	sim
	rng      *rand.Rand
	srq      qp.SRQ
	cq       cqRing // of all receives
	senders  []*sharedSender
	mem      [2][]byte
	reg      [2]*memreg.Region
	slots    int // receives that the program has
	posted   int
	done     map[uint64]bool
	rnrTimer uint8
	armed    int // times that the limit was armed
	told     int // times that the limit was told
	failure  error
	onFirst  func() // called when the first sender has finished
}

// sharedSender is a pair of queue pairs and its messages.
type sharedSender struct {
	typ      ib.QPType
	from, to *simQP
	ah       *ib.AddressHandle
	posted   int
	sent     int // send completions
	got      int // messages that have arrived, of UC and UD the last one
	finished clock.Time
}

const (
	sharedMessages = 30 // of each sender
	sharedSlot     = 2048
	sharedSRQN     = 0x77
)

// Next implements qp.RecvSource.
func (w *sharedWorld) Next(r *qp.Recv) bool {
	limit := w.srq.Limit()
	ok, told := w.srq.Next(r)
	if told {
		if w.told++; w.told > w.armed || w.srq.Len() >= limit || w.srq.Limit() != 0 {
			w.failf("told %d times of the limit %d, which was armed %d times, with %d receives left", w.told, limit, w.armed, w.srq.Len())
		}
	} else if w.srq.Len() < limit {
		w.failf("%d receives are left of the limit %d, and there was no event", w.srq.Len(), limit)
	}
	return ok
}

// SRQ implements qp.XRCDomain.
func (w *sharedWorld) SRQ(n uint32) (qp.RecvSource, *memreg.PD) {
	if n != sharedSRQN {
		return nil, nil
	}
	return w, w.nodes[1].pd
}

func (w *sharedWorld) failf(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("at %s: %s", duration(w.now), fmt.Sprintf(format, args...))
	}
}

func newSharedWorld(seed uint64, types []ib.QPType, rnrTimer uint8) (*sharedWorld, error) {
	w := &sharedWorld{rnrTimer: rnrTimer, rng: rand.New(rand.NewPCG(seed, 0x5a5a)), done: map[uint64]bool{}}
	w.hooks.unexpected = w.failf
	for i := range w.nodes {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
		n := &simNode{node: newNode(addr, w.rng.Uint32), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		n.link = linkParams{delay: 10_000, bitsPerSecond: 10e9, queue: 10_000, jitter: 100_000}
		if seed%3 > 0 {
			n.link.loss, n.link.dup, n.link.reorder = 0.02, 0.02, 0.02
		}
		w.nodes[i] = n
		w.mem[i] = make([]byte, 1<<20)
		var err error
		if w.reg[i], err = n.register(n.pd, w.mem[i], 0, accessAll); err != nil {
			return nil, err
		}
	}
	for i, n := range w.nodes {
		n.peer = w.nodes[1-i]
		n.flow = rocev2.NewFlow(n.addr, n.peer.addr, 0xc000, rocev2.UDPPort)
		n.store = qp.NewPool(1024)
	}
	w.slots = 1 + w.rng.IntN(2*len(types))
	for _, typ := range types {
		if typ == ib.UC { // it may hold one, for a message that lost its end
			w.slots++
		}
	}
	w.srq.Init(w.slots, 2, w.nodes[1].pd, &w.cq)
	for i, typ := range types {
		if err := w.join(i, typ, seed); err != nil {
			return nil, err
		}
	}
	w.push(event{kind: eventAct}) // the receiver's program
	return w, nil
}

// join makes a pair of queue pairs, of which the receiving one shares.
func (w *sharedWorld) join(i int, typ ib.QPType, seed uint64) error {
	s := &sharedSender{typ: typ}
	psn := rocev2.PSN(w.rng.Uint32()) & rocev2.PSNMask
	for j, q := range []**simQP{&s.from, &s.to} {
		c := qp.Config{QPN: rocev2.QPN(0x100 + 16*i + j), Type: typ, PortMTU: rocev2.MTU1024, MaxSendWR: 8, MaxSendSGE: 1, MaxRecvSGE: 2}
		switch {
		case typ == ib.XRCInitiator && j == 1:
			c.Type, c.Domain = ib.XRCTarget, w
		case j == 1:
			c.RecvSource = w
		}
		ep, err := newEndpoint(w.nodes[j].node, c)
		if err != nil {
			return err
		}
		if seed%2 == 0 && typ != ib.UC && typ != ib.UD {
			ep.SetReorder(w.nodes[j].store)
		}
		*q = &simQP{endpoint: ep, on: w.nodes[j], qpn: c.QPN}
		w.nodes[j].qps = append(w.nodes[j].qps, *q)
		err = ep.connect(ib.Attr{State: ib.StateRTS, Access: accessWrite, Port: 1, AV: ib.AddressVector{DGID: w.nodes[1-j].addr}, PathMTU: rocev2.MTU1024,
			Timeout: 10, RetryCount: 7, RNRRetry: 7, MinRNRTimer: w.rnrTimer, SQPSN: psn, RQPSN: psn, DestQPN: c.QPN ^ 1, MaxRdAtomic: 4, MaxDestRdAtomic: 4, QKey: defaultQKey})
		if err != nil {
			return err
		}
	}
	s.ah = &ib.AddressHandle{Domain: w.nodes[0].pd}
	s.ah.SetVector(&ib.AddressVector{DGID: w.nodes[1].addr})
	w.senders = append(w.senders, s)
	w.push(event{kind: eventAct, q: s.from})
	return nil
}

// message returns message n of a sender: none of its bytes is zero.
func (s *sharedSender) message(n int) []byte {
	size := 8 + (n*397+int(s.from.qpn)*31)%1900
	if s.typ == ib.UD {
		size = min(size, 1024)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(1 + (i*7+n*13+int(s.from.qpn))%255)
	}
	binary.LittleEndian.PutUint32(b, uint32(s.from.qpn))
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	return b
}

// act is what the programs do: each sender sends, and the receiver takes what
// has completed and posts receives.
func (w *sharedWorld) act(q *simQP) {
	if q == nil {
		w.receive()
		return
	}
	for _, s := range w.senders {
		if s.from == q {
			w.send(s)
		}
	}
}

func (w *sharedWorld) send(s *sharedSender) {
	for _, wc := range s.from.sendCQ.drain() {
		if wc.Status != ib.StatusSuccess || wc.ID != uint64(s.sent) {
			w.failf("%v: completion %+v, want %d", s.typ, wc, s.sent)
		}
		s.sent++
	}
	if s.posted < sharedMessages && s.posted-s.sent < 8 && w.rng.IntN(4) > 0 {
		m, at := s.message(s.posted), int(s.from.qpn-0x100)/16*8*sharedSlot+s.posted%8*sharedSlot
		copy(w.mem[0][at:], m)
		err := s.from.PostSend(&ib.SendWR{ID: uint64(s.posted), Opcode: ib.OpSend, Signaled: true, AH: s.ah, RemoteQPN: s.to.qpn, RemoteQKey: defaultQKey,
			RemoteSRQN: sharedSRQN, SGList: []ib.SGE{w.reg[0].SGE(uint64(at), uint32(len(m)))}})
		if err != nil {
			w.failf("%v: %v", s.typ, err)
		}
		s.posted++
		w.touch(s.from)
	}
	if s.sent < sharedMessages {
		w.push(event{at: w.now + clock.Time(w.rng.IntN(40_000)), kind: eventAct, q: s.from})
	} else if s.finished == 0 {
		s.finished = w.now
		if f := w.onFirst; f != nil {
			w.onFirst = nil
			f()
		}
	}
}

func (w *sharedWorld) receive() {
	for _, wc := range w.cq.drain() {
		w.take(&wc)
	}
	for w.posted-len(w.done) < w.slots && w.rng.IntN(3) > 0 {
		at := uint64(w.posted % (1 << 8) * sharedSlot)
		clear(w.mem[1][at:][:sharedSlot])
		if err := w.srq.Post(&ib.RecvWR{ID: uint64(w.posted), SGList: []ib.SGE{w.reg[1].SGE(at, sharedSlot)}}); err != nil {
			w.failf("receive %d: %v", w.posted, err)
		}
		w.posted++
	}
	if w.srq.Limit() == 0 && w.rng.IntN(4) == 0 {
		n := 1 + w.rng.IntN(w.slots)
		w.srq.SetLimit(n)
		w.armed++
	}
	for _, s := range w.senders {
		if s.sent < sharedMessages {
			w.push(event{at: w.now + clock.Time(w.rng.IntN(60_000)), kind: eventAct})
			return
		}
	}
}

// take checks a receive that has completed.
func (w *sharedWorld) take(wc *ib.WC) {
	if w.done[wc.ID] || wc.ID >= uint64(w.posted) || wc.Status != ib.StatusSuccess {
		w.failf("receive %+v completes twice, was not posted, or failed", *wc)
	}
	w.done[wc.ID] = true
	b := w.mem[1][wc.ID%(1<<8)*sharedSlot:][:wc.ByteLen]
	if wc.WithGRH {
		b = b[rocev2.GRHLen:]
	}
	for _, s := range w.senders {
		if s.to.qpn != wc.QPN {
			continue
		}
		n := int(binary.LittleEndian.Uint32(b[4:]))
		if wc.SrcQPN != s.from.qpn || n >= s.posted || !bytes.Equal(b, s.message(n)) {
			w.failf("%v: receive %+v has not the bytes of a message of its queue pair", s.typ, *wc)
		}
		switch s.typ {
		case ib.UD: // may come twice, and late
		case ib.UC:
			if n < s.got && w.nodes[0].link.reorder == 0 {
				w.failf("UC: message %d after %d", n, s.got)
			}
			s.got = n
		default:
			if n != s.got {
				w.failf("%v: message %d arrives, want %d", s.typ, n, s.got)
			}
			s.got++
		}
		return
	}
	w.failf("receive %+v is of no queue pair", *wc)
}

func (w *sharedWorld) run() error {
	for w.failure == nil && w.step(w.act) {
		if w.events > maxEvents || w.now > maxVirtual {
			w.failf("no end after %d events", w.events)
		}
	}
	w.receive()
	inHand := w.posted - len(w.done) - w.srq.Len()
	if half := len(w.senders); inHand < 0 || inHand > half {
		w.failf("%d receives were posted, %d have completed and %d are left", w.posted, len(w.done), w.srq.Len())
	}
	for _, s := range w.senders {
		reliable := s.to.Reliable()
		if s.sent != sharedMessages || reliable && s.got != sharedMessages || reliable && s.to.State() != ib.StateRTS {
			w.failf("%v: %d of %d messages have completed, %d have arrived, the receiver is in %v", s.typ, s.sent, sharedMessages, s.got, s.to.State())
		}
	}
	return w.failure
}

// TestSharedWorld plays seeded worlds of one shared receive queue: no receive
// is lost or used twice, every completion is of the right queue pair and has
// its bytes, a message that met no receive is sent again until it has one, and
// the limit is reported once for each arming.
func TestSharedWorld(t *testing.T) {
	t.Parallel()
	all := []ib.QPType{ib.RC, ib.UC, ib.UD, ib.XRCInitiator}
	var rnr, told, done, dropped uint64
	for i := range uint64(seedsOf()) {
		seed := *firstSeed + i
		rng := rand.New(rand.NewPCG(seed, 3))
		var types []ib.QPType
		for range 2 + rng.IntN(8) {
			types = append(types, all[rng.IntN(len(all))])
		}
		w, err := newSharedWorld(seed, types, 4)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.run(); err != nil {
			t.Fatalf("seed %d, %v: %v", seed, types, err)
		}
		told, done = told+uint64(w.told), done+uint64(len(w.done))
		for _, s := range w.senders {
			rnr += s.from.Stats().RNRReceived
			dropped += s.to.Stats().MessagesDropped
		}
	}
	t.Logf("%d receives, %d times not ready, %d limits told, %d messages dropped", done, rnr, told, dropped)
	if rnr == 0 || told == 0 || done == 0 {
		t.Error("too little has happened")
	}
}

// What is guaranteed where receives are short: every sender finishes. How
// evenly they do depends on MinRNRTimer. A sender that met no receive tries
// again after that time, and until then others take what is posted. With a time
// of the order of the interval at which receives are posted, all proceed
// together; with a much longer one they finish one after the other, and later.
func TestSharedReceivesAreFair(t *testing.T) {
	t.Parallel()
	const short, long = 1, 12 // 10 µs and 0.64 ms
	var last [2]clock.Time
	var least [2]int // the fewest of a sender when the first one finished
	for i, timer := range []uint8{short, long} {
		least[i] = sharedMessages
		for seed := uint64(3); seed <= 30; seed += 3 {
			w, err := newSharedWorld(seed, slices.Repeat([]ib.QPType{ib.RC, ib.XRCInitiator}, 4), timer)
			if err != nil {
				t.Fatal(err)
			}
			w.slots = 3
			w.onFirst = func() {
				for _, s := range w.senders {
					least[i] = min(least[i], s.sent)
				}
			}
			if err := w.run(); err != nil {
				t.Fatalf("timer %d, seed %d: %v", timer, seed, err)
			}
			for _, s := range w.senders {
				last[i] = max(last[i], s.finished)
			}
		}
	}
	t.Logf("of %d messages the slowest has %v when the first is done; the last is done after %v", sharedMessages, least, last)
	if least[0] < sharedMessages/6 || least[0] <= least[1] {
		t.Errorf("of %d messages the slowest has %d when the first is done", sharedMessages, least[0])
	}
}
