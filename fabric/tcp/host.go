package tcp

import (
	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/internal/heap"
)

// Stack is TCP on the hosts of a network. It is not safe for concurrent use,
// but the hosts of several parts of a network may run at the same time.
type Stack struct {
	a     *adapter.Adapters
	rand  event.Rand
	hosts map[int]*host // only looked up
	list  []*host
}

// New returns the TCP of the hosts of some adapters. None has any before
// Connect asks for it.
func New(a *adapter.Adapters, seed uint64) *Stack {
	const stream = 0x7c9 // of randomness, among those of one seed
	return &Stack{a: a, rand: event.NewRand(seed, stream), hosts: map[int]*host{}}
}

// Stats returns the sum of all counters. No host may run meanwhile.
func (s *Stack) Stats() (sum Stats) {
	for _, h := range s.list {
		sum.Add(&h.gone)
		for _, e := range h.all {
			sum.Add(&e.stats)
		}
	}
	return sum
}

// host is the TCP of a host. It is what is beside its adapter.
type host struct {
	a    *adapter.Host
	net  *network.Network
	ends map[key]*end // only looked up
	all  []*end       // that are not closed
	gone Stats        // of those that are

	ready  [network.NumClasses]fifo
	turn   int
	timers heap.Heap[event.Time, *end]
	armed  event.Time // when fire is called; Never: not at all
	port   uint16     // of the last connection
}

// key is what a segment belongs to a connection by.
type key struct {
	peer     int
	own, far uint16
}

// end is an end of a connection.
type end struct {
	host   *host
	key    key
	index  int    // in host.all
	port   uint16 // that chooses the way
	class  uint8
	cfg    *Config
	stats  Stats
	snd    *sender   // nil: it receives
	rcv    *receiver // nil: it sends
	done   func()    // called when all is acknowledged, or has arrived
	queued bool
	closed bool
	timer  event.Time // for which it stands in host.timers; Never: for none
}

// host returns that of a number.
func (s *Stack) host(number int) (*host, error) {
	if h := s.hosts[number]; h != nil {
		return h, nil
	}
	a, err := s.a.Host(number)
	if err != nil {
		return nil, err
	}
	h := &host{a: a, net: s.a.Network(), ends: map[key]*end{}, armed: event.Never, port: firstPort - 1}
	a.Beside(h)
	s.hosts[number] = h
	s.list = append(s.list, h)
	return h, nil
}

// add adds an end.
func (h *host) add(e *end) *end {
	e.host, e.index, e.timer = h, len(h.all), event.Never
	h.ends[e.key] = e
	h.all = append(h.all, e)
	return e
}

// remove takes an end away.
func (h *host) remove(e *end) {
	if e.closed {
		return
	}
	e.closed = true
	delete(h.ends, e.key)
	last := h.all[len(h.all)-1]
	h.all[e.index], last.index = last, e.index
	h.all[len(h.all)-1] = nil
	h.all = h.all[:len(h.all)-1]
	h.gone.Add(&e.stats)
}

// Classes implements adapter.Protocol.
func (h *host) Classes() (classes uint8) {
	for class := range h.ready {
		if h.ready[class].len() > 0 {
			classes |= 1 << class
		}
	}
	return classes
}

// Next implements adapter.Protocol.
func (h *host) Next(now event.Time, paused uint8, p *adapter.Foreign) bool {
	for i := range network.NumClasses {
		class := (h.turn + i) % network.NumClasses
		if paused>>class&1 != 0 {
			continue
		}
		for q := &h.ready[class]; q.len() > 0; {
			e := q.pop()
			e.queued = false
			if !e.closed && e.next(now, p) {
				h.turn = (class + 1) % network.NumClasses
				e.changed()
				return true
			}
		}
	}
	return false
}

// Receive implements adapter.Protocol.
func (h *host) Receive(now event.Time, p *adapter.Foreign) {
	var s segment
	n, err := s.parse(p.Header)
	if err != nil {
		return
	}
	e := h.ends[key{p.Host, s.dstPort, s.srcPort}]
	switch {
	case e == nil: // it was closed
	case e.rcv != nil:
		had := e.rcv.all()
		e.rcv.handle(now, &s, p.Length-n, p.ECN == network.CE)
		e.changed()
		if !had && e.rcv.all() && e.done != nil {
			e.done()
		}
	case !e.snd.done():
		e.snd.handle(now, &s)
		e.changed()
		if e.snd.done() && e.done != nil {
			e.done()
		}
	}
}

// next writes a packet, and reports whether there is one.
func (e *end) next(now event.Time, p *adapter.Foreign) bool {
	s := segment{srcPort: e.key.own, dstPort: e.key.far}
	payload := 0
	if e.rcv != nil {
		if !e.rcv.next(&s) {
			return false
		}
	} else {
		kind := nothing
		if payload, kind = e.snd.next(now, &s); kind == nothing {
			return false
		}
		if kind == news && payload > 0 && e.cfg.ecn() {
			p.ECN = network.ECT0 // not what goes again (RFC 3168 6.1.5)
		}
	}
	p.Header = s.append(p.Header)
	p.Length, p.Host, p.Port, p.DSCP = len(p.Header)+payload, e.key.peer, e.port, e.cfg.DSCP
	return true
}

// changed does what follows when something has happened to an end: it waits for
// the cable if it has something to send, and for its deadline.
func (e *end) changed() {
	h := e.host
	deadline, ready := event.Never, false
	if e.rcv != nil {
		deadline, ready = e.rcv.deadline, e.rcv.ready()
	} else {
		_, kind := e.snd.what()
		deadline, ready = e.snd.deadline, kind != nothing
	}
	if ready && !e.queued {
		e.queued = true
		h.ready[e.class].push(e)
	}
	if deadline < e.timer {
		e.timer = deadline
		h.timers.Push(deadline, e)
		h.arm()
	}
}

// arm has fire called when the first deadline has come.
func (h *host) arm() {
	if at, ok := h.timers.Min(); ok && at < h.armed {
		h.armed = at
		h.a.At(at, h.fire)
	}
}

// fire handles the deadlines that have come. One that was moved later since
// stands there as it was.
func (h *host) fire() {
	now := h.a.Now()
	if now >= h.armed {
		h.armed = event.Never
	}
	for at, ok := h.timers.Min(); ok && at <= now; at, ok = h.timers.Min() {
		_, e := h.timers.Pop()
		if e.closed || at != e.timer {
			continue
		}
		e.timer = event.Never
		switch {
		case e.rcv != nil && e.rcv.deadline <= now:
			e.rcv.timeout()
		case e.snd != nil && e.snd.deadline <= now:
			e.snd.timeout()
		}
		e.changed()
	}
	h.arm()
	h.a.Ready()
}

// fifo is ends that wait for the cable.
type fifo struct {
	list []*end
	head int
}

func (q *fifo) len() int { return len(q.list) - q.head }

func (q *fifo) push(e *end) { q.list = append(q.list, e) }

func (q *fifo) pop() *end {
	e := q.list[q.head]
	q.list[q.head] = nil
	if q.head++; 2*q.head >= len(q.list) {
		q.list = q.list[:copy(q.list, q.list[q.head:])]
		q.head = 0
	}
	return e
}
