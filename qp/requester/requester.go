package requester

import (
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Config is what a requester is made with.
type Config struct {
	MaxSendWR, MaxSendSGE, MaxInline int

	SendCQ     queue.CompletionSink
	SignalAll  bool
	Controller cc.Controller
	ReadChunk  int  // bytes per READ request; 0 is no bound
	LongReads  bool // see qp.Config
	MinProbe   time.Duration
}

// Requester is the sending half: its parts, and what goes on between them; see
// the package's documentation.
type Requester struct {
	stream   stream
	recovery recovery
	credit   credit
	reorder  queue.Reorder // responses after a gap
}

// Init makes a requester of c, which is in RESET.
func (r *Requester) Init(c *conn.Conn, config Config) {
	*r = Requester{}
	r.stream.init(c, &config)
	r.recovery.init(&r.stream, config.MinProbe)
	c.CC.Control = config.Controller
	r.Reset()
}

// Reset drops everything but the memory of the queue.
func (r *Requester) Reset() {
	r.stop()
	r.stream.reset()
	r.recovery.init(&r.stream, r.recovery.rtt.floor)
	r.credit = credit{}
	r.stream.c.CC.End()
}

// Flush ends all work, on the way to ERR: every request completes with
// WR_FLUSH_ERR, in order (IBTA 10.3.1).
func (r *Requester) Flush() {
	r.stop()
	r.stream.flush()
}

// stop stops the timers and gives back what is kept.
func (r *Requester) stop() {
	r.reorder.Discard()
	r.recovery.stop()
}

// ReadyToReceive takes the path MTU, on the way to RTR.
func (r *Requester) ReadyToReceive() { r.stream.setMTU() }

// ReadyToSend begins at PSN first, on the way to RTS.
func (r *Requester) ReadyToSend(first rocev2.PSN) {
	r.stream.begin(first)
	r.recovery.rtt.begin(first)
	r.stream.c.CC.Reset()
}

// Configure brings changed attributes to where they are used.
func (r *Requester) Configure(mask ib.AttrMask) { r.recovery.configure(mask) }

// SetLimits changes the bounds of what may be in flight.
func (r *Requester) SetLimits(l cc.Config) {
	c := r.stream.c
	c.CC.Control.SetConfig(l)
	c.Reload()
}

// SharePauses has the requester share p with others until it is reset.
func (r *Requester) SharePauses(p *Pauses) { r.recovery.rtt.share(p) }

// Heard records that a packet of the peer has come.
func (r *Requester) Heard(now clock.Time) { r.recovery.rtt.pauses.heard = now }

// Marked takes a sign of congestion on the path of what is in flight: a
// notification of the peer (CNP), or a response that came marked.
func (r *Requester) Marked(now clock.Time, how cc.Mark) {
	r.stream.c.Marked(now, r.recovery.flight(), how)
}

// Held returns the number of responses that are kept after a gap.
func (r *Requester) Held() int { return r.reorder.Len() }

// DiscardHeld discards the responses that are kept after a gap, and what is
// known of what the peer keeps. Another peer may not keep anything.
func (r *Requester) DiscardHeld() {
	r.reorder.Discard()
	r.recovery.newPeer()
}

// NextPSN returns the first PSN that was never sent.
func (r *Requester) NextPSN() rocev2.PSN { return r.stream.max }

// NextCost returns the bytes that the request at the cursor counts in flight,
// for a READ those that it asks for; 0 if there is none.
func (r *Requester) NextCost() int {
	s := &r.stream
	if s.empty() {
		return 0
	}
	w := s.ring.At(s.cur)
	n, psns := uint64(w.Length), uint64(1)
	begun := s.cur != s.started
	rel := s.nxt.Ahead(w.First)
	if begun {
		n -= uint64(rel) << s.c.Shift
	}
	switch {
	case w.Kind&ib.OpReads != 0 && begun:
		psns = uint64(s.chunk.end(w, rel) - rel)
	case w.Kind&ib.OpReads != 0:
		psns = min(uint64(s.c.PSNs(w.Length)), uint64(s.chunk))
	}
	return int(min(min(n, psns<<s.c.Shift)+psns*cc.PacketOverhead, mostCounted))
}

// Drained reports whether no message is under way: everything that was started
// has completed.
func (r *Requester) Drained() bool { return r.stream.drained() }

// NotifyDrained has EventSQDrained raised once when the send queue is drained
// (IBTA 10.3.1).
func (r *Requester) NotifyDrained(on bool) { r.stream.notifyDrained(on) }

// HandleTimeout does what is due at now; without anything due it does nothing.
func (r *Requester) HandleTimeout(now clock.Time) {
	c := r.stream.c
	c.Expire(&r.reorder, now, queue.ReorderAge(c.SRTT))
	r.recovery.timeout(now)
}

// Deadline returns when HandleTimeout wants to be called, or Poll, and whether
// at all.
func (r *Requester) Deadline() (clock.Time, bool) {
	at, armed := r.recovery.deadline()
	if r.reorder.Len() > 0 {
		if t, _ := r.reorder.Deadline(queue.ReorderAge(r.stream.c.SRTT)); !armed || t < at {
			return t, true
		}
	}
	return at, armed
}

// Fetch returns the next memory that must be fetched, each once.
func (r *Requester) Fetch() (conn.Fetch, bool) { return r.recovery.fetch.Poll(conn.NeedPayload) }

// Fetched has what waited for a fetch go on. It may come late.
func (r *Requester) Fetched(now clock.Time, need conn.Need) {
	if r.recovery.fetch.Done(need) && need == conn.NeedPayload && r.stream.inFlight() > 0 {
		r.recovery.await(now)
	}
}

// Middle returns where the payloads of the next responses to the READ under way
// go, from the one of PSN psn on: those between the first and the last. Before
// that one, ahead responses to the same request were received and are not
// executed. The view is pinned unless there is nothing.
//
// Responses are executed in order, so nothing of that memory was written
// before, and all of it is before the READ is complete.
func (r *Requester) Middle(psn rocev2.PSN, ahead int) memreg.View {
	s, c := &r.stream, r.stream.c
	if psn != s.una.Add(ahead) || s.max == s.una || r.reorder.Len() > 0 {
		return memreg.View{}
	}
	w := s.head()
	rel := psn.Ahead(w.First)
	if w.Kind&ib.OpReads == 0 || rel >= w.PSNs || rel%s.chunk.of(w) == 0 {
		return memreg.View{}
	}
	v := c.Memory.PlaceLocal(c.PD, s.ring.List(s.ring.Head, w), uint64(rel)<<c.Shift)
	return v.Part(0, min(v.Len(), uint64(s.chunk.end(w, rel)-rel-1)<<c.Shift))
}

// HandleRun takes n responses whose payloads lie where Middle has said, and
// returns how many there were until the connection has failed. Each is progress
// of its own, for the timers and the window.
func (r *Requester) HandleRun(now clock.Time, n int) int {
	s := &r.stream
	w := s.head()
	rel := s.una.Ahead(w.First)
	for i := range n {
		from, pos := s.una, s.posUna
		rel++
		s.take(w, rel)
		if r.recovery.progress(now, from, pos); s.c.Failed() {
			return i + 1
		}
		if r.recovery.gaps != nil {
			r.recovery.gaps.givenUp(r.reorder)
		}
	}
	return n
}
