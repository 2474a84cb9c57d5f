package qptest

import (
	"math"
	"math/rand/v2"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// sim is a discrete-event simulation of two nodes and the link between them. It
// drives queue pairs as a device does: packets in, timers, and Poll for
// as long as the link has room.
type sim struct {
	now     clock.Time
	heap    heap.Heap[clock.Time, event] // by time, and of one time in the order of the calls
	events  int
	free    [][]byte // packet buffers to use again
	nodes   [2]*simNode
	hooks   simHooks
	burst   int  // packets of bursts
	skipCRC bool // the goodput runs have no corruption to find
}

// simHooks let the world look at everything that happens. All may be nil.
type simHooks struct {
	sent       func(q *simQP, wire []byte, lost, late bool) // q transmitted a packet
	arrived    func(q *simQP, p *rocev2.Packet)             // around HandlePacket
	dropped    func(q *simQP, p *rocev2.Packet, d qp.Drop)  // HandlePacket refused it
	touched    func(q *simQP)                               // after every input
	drained    func(q *simQP)                               // Poll has nothing to send
	fetch      func(q *simQP, f qp.Fetch)                   // q waits for f
	fetched    func(q *simQP, f qp.Fetch)                   // and that is done now
	unexpected func(format string, args ...any)
}

// linkParams describe one direction of the link.
type linkParams struct {
	loss, dup, reorder, corrupt float64 // probabilities per packet
	forge                       float64 // corruption that the ICRC does not find
	delay                       clock.Time
	jitter                      clock.Time // of reordered packets
	bitsPerSecond               int64
	queue                       clock.Time // how far ahead a node may fill the link
	buffer                      int        // bytes at the receiver that wait to be taken; 0: taken at once
	takes                       int64      // how fast, in bits per second
	mark                        float64    // probability that a packet is marked with Congestion Experienced
	markFrom                    int        // bytes that wait in the buffer from which on packets are marked; 0: none are
	router                      *router    // on the way; nil: there is none
	ways                        int        // of which each packet takes any; one is as much longer than another as a packet of 4 KiB takes
}

// simNode is one side: a port with its queue pairs.
type simNode struct {
	*node
	peer      *simNode
	flow      rocev2.Flow
	link      linkParams // of what this node sends
	rng       *rand.Rand
	marks     *rand.Rand // decides about marks alone
	spray     *rand.Rand // and about ways
	losses    int        // packets that the link lost
	dead      bool       // the link loses everything from now on
	qps       []*simQP
	store     *qp.Pool
	takenAt   clock.Time // when what has arrived is taken off the buffer
	turn      int        // round robin over qps
	busyUntil clock.Time // the link takes the next packet then
	polling   bool       // an eventPoll is pending
	lag       clock.Time // how long received packets wait before the node transmits: batches
}

// simQP is one queue pair on a node.
type simQP struct {
	*endpoint
	on       *simNode
	qpn      rocev2.QPN
	armed    clock.Time // when the earliest pending eventTimer fires
	hasTimer bool
	ready    bool // may have something to send
	closed   bool
	burst    int   // most packets of a Poll, after which comes another's turn; 0: it is not called
	model    *side // of the world; nil elsewhere
}

type eventKind uint8

const (
	eventArrive  eventKind = iota // wire arrives at node
	eventPoll                     // node transmits
	eventTimer                    // the timer of q is due
	eventAct                      // the application of q does something
	eventFetched                  // what q waits for is done
)

type event struct {
	at   clock.Time
	kind eventKind
	node *simNode
	q    *simQP
	carried
	fetch qp.Fetch
}

// push schedules an event. Equal times keep the order of the calls.
func (s *sim) push(e event) {
	s.heap.Push(e.at, e)
}

// step runs the next event; false when there is none.
func (s *sim) step(act func(q *simQP)) bool {
	if s.heap.Len() == 0 {
		return false
	}
	_, e := s.heap.Pop()
	s.now = max(s.now, e.at)
	s.events++
	switch e.kind {
	case eventArrive:
		s.arrive(e.node, e.carried)
	case eventPoll:
		e.node.polling = false
		s.transmit(e.node)
	case eventTimer:
		s.timer(e.q)
	case eventAct:
		act(e.q)
	case eventFetched:
		s.hooks.fetched(e.q, e.fetch)
	}
	return true
}

func (s *sim) timer(q *simQP) {
	q.hasTimer = false
	if q.closed {
		return
	}
	if t, ok := q.Deadline(); ok && t <= s.now {
		q.HandleTimeout(s.now)
		if t, ok := q.Deadline(); ok && t <= s.now {
			s.hooks.unexpected("QP %v: the timer is still due after HandleTimeout", q.qpn)
		}
	}
	s.touch(q)
}

// touch follows every input to a QP: it looks after the timer and has the node
// transmit.
func (s *sim) touch(q *simQP) {
	if s.hooks.touched != nil {
		s.hooks.touched(q)
	}
	if q.closed {
		return
	}
	q.ready = true
	s.arm(q)
	s.wake(q.on, s.now+q.on.lag)
}

func (s *sim) arm(q *simQP) {
	if t, ok := q.Deadline(); ok && (!q.hasTimer || t < q.armed) {
		q.hasTimer, q.armed = true, t
		s.push(event{at: t, kind: eventTimer, q: q})
	}
}

func (s *sim) wake(n *simNode, at clock.Time) {
	if !n.polling {
		n.polling = true
		s.push(event{at: at, kind: eventPoll, node: n})
	}
}

// transmit fills the link from the QPs of n in turn.
func (s *sim) transmit(n *simNode) {
	for idle := 0; idle < len(n.qps); {
		if n.busyUntil > s.now+n.link.queue {
			s.wake(n, n.busyUntil-n.link.queue)
			return
		}
		q := n.qps[n.turn%len(n.qps)]
		n.turn++
		if !q.ready || q.closed {
			idle++
			continue
		}
		packets := s.poll(q)
		s.arm(q)
		if len(packets) == 0 {
			q.ready = false
			if s.hooks.drained != nil {
				s.hooks.drained(q)
			}
			idle++
			continue
		}
		idle = 0
		for _, p := range packets {
			s.carry(q, p)
		}
	}
}

// poll returns what q has to send: one packet, or up to a burst. Now and then
// the room ends before that.
func (s *sim) poll(q *simQP) [][]byte {
	most := max(q.burst, 1)
	b := burstList{s: s, room: max(1, most-q.on.turn%3)}
	if p := q.Poll(s.now, qp.Limit{Packets: most, Bytes: math.MaxInt}, &b); p.Packets != len(b.packets) {
		s.hooks.unexpected("QP %v: a burst of %d packets, returned %d", q.qpn, len(b.packets), p.Packets)
	}
	for s.hooks.fetch != nil {
		f, ok := q.PollFetch()
		if !ok {
			break
		}
		s.hooks.fetch(q, f)
	}
	if b.next != nil {
		s.free = append(s.free, b.next)
	}
	if len(b.packets) > 1 {
		s.burst += len(b.packets)
	}
	return b.packets
}

// burstList takes a burst. Nothing looks at the packets before it is over.
type burstList struct {
	s       *sim
	room    int
	next    []byte
	packets [][]byte
}

func (b *burstList) Room() []byte {
	if len(b.packets) >= b.room {
		return nil
	}
	if b.next == nil {
		b.next = b.s.buffer()
	}
	return b.next[:rocev2.MaxPacketLen]
}

func (b *burstList) Commit(n int, _ *ib.AddressVector, _ qp.PacketKind) {
	b.packets = append(b.packets, b.next[:n])
	b.next = nil
}

// overrun puts a packet into the receiver's buffer and returns when it is
// taken, or that there was no room, and whether it is marked on the way.
func (n *simNode) overrun(at clock.Time, size int) (taken clock.Time, lost, marked bool) {
	l := &n.link
	waiting := int64(max(n.takenAt-at, 0)) * l.takes / 8e9
	if waiting+int64(size) > int64(l.buffer) {
		return at, true, false
	}
	n.takenAt = max(n.takenAt, at) + clock.Time(int64(size)*8*1e9/l.takes)
	return n.takenAt, false, l.markFrom > 0 && waiting >= int64(l.markFrom)
}

func (s *sim) buffer() []byte {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b[:cap(b)]
	}
	return make([]byte, rocev2.MaxPacketLen)
}

// carry puts one packet on the link and decides its fate.
func (s *sim) carry(q *simQP, wire []byte) {
	n, l := q.on, &q.on.link
	if s.skipCRC {
		wire = append(wire, 0, 0, 0, 0)
	} else {
		wire = n.flow.Seal(0, wire)
	}
	// Ethernet, IP and UDP headers, preamble and gap: 66 bytes.
	n.busyUntil = max(n.busyUntil, s.now) + clock.Time(int64(len(wire)+66)*8*1e9/l.bitsPerSecond)
	at := n.busyUntil + l.delay
	lost := n.dead || n.rng.Float64() < l.loss
	marked := l.mark > 0 && n.marks.Float64() < l.mark
	if l.buffer > 0 && !lost {
		at, lost, marked = n.overrun(at, len(wire))
	}
	if l.router != nil && !lost {
		at, lost, marked = l.router.pass(at, len(wire))
	}
	if lost {
		n.losses++
	}
	if l.ways > 1 {
		at += clock.Time(n.spray.IntN(l.ways)) * clock.Time((4<<10)*8*1e9/l.bitsPerSecond)
	}
	late := l.reorder > 0 && n.rng.Float64() < l.reorder
	if late {
		at += clock.Time(n.rng.Int64N(int64(l.jitter)))
	}
	if s.hooks.sent != nil {
		s.hooks.sent(q, wire, lost, late)
	}
	if lost {
		s.free = append(s.free, wire)
		return
	}
	if l.dup > 0 && n.rng.Float64() < l.dup {
		again := append(s.buffer()[:0], wire...)
		s.push(event{at: at + clock.Time(n.rng.Int64N(int64(l.jitter))), kind: eventArrive, node: n.peer, carried: carried{again, marked}})
	}
	if l.corrupt > 0 && n.rng.Float64() < l.corrupt {
		flipBits(n.rng, wire)
	}
	if l.forge > 0 && n.rng.Float64() < l.forge {
		flipBits(n.rng, wire[:len(wire)-4])
		wire = n.flow.Seal(0, wire[:len(wire)-4])
	}
	s.push(event{at: at, kind: eventArrive, node: n.peer, carried: carried{wire, marked}})
}

// flipBits flips one to three bits, more often in the headers than a fair
// choice would.
func flipBits(rng *rand.Rand, b []byte) {
	for range 1 + rng.IntN(3) {
		i := rng.IntN(len(b))
		if rng.IntN(2) == 0 {
			i = rng.IntN(min(len(b), 32))
		}
		b[i] ^= 1 << rng.IntN(8)
	}
}

// arrive is the receive path of a device: ICRC, parser, QPN, QP.
func (s *sim) arrive(n *simNode, c carried) {
	defer func() { s.free = append(s.free, c.wire) }()
	if !s.skipCRC && !n.peer.flow.Verify(0, c.wire) {
		return
	}
	var p rocev2.Packet
	if p.Parse(c.wire) != nil {
		return
	}
	for _, q := range n.qps {
		if q.qpn != p.BTH.DestQPN || q.closed {
			continue
		}
		if s.hooks.arrived != nil {
			s.hooks.arrived(q, &p)
		}
		d := q.HandlePacket(s.now, arrival(n.peer.addr, n.addr, &p, c.marked))
		if d != qp.DropNone && s.hooks.dropped != nil {
			s.hooks.dropped(q, &p, d)
		}
		s.touch(q)
		return
	}
}
