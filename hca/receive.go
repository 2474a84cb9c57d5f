package hca

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// Who receives. A packet that must wake one goroutine to be received and a
// second one to be seen costs twice; so the goroutine that wants the completion
// receives for itself whenever it can:
//
//   - A program that polls takes packets from the link as it polls.
//   - A program that waits blocks in link.Wait itself: it has the lead.
//   - The shard's own receiver has the lead while no program does. When it
//     finds that programs take the packets, it stands aside, and comes back when
//     they have been quiet for a tick.
//
// The lead is the right to block in link.Wait. Receiving itself is open to all,
// one at a time, under rxMu.
type lead struct {
	taken    atomic.Bool
	aside    atomic.Bool   // the receiver stands aside
	dormant  atomic.Bool   // it sleeps until a program gives up the lead
	activity atomic.Uint64 // counts programs' polls and waits
	parked   atomic.Int32  // programs that wait without the lead
	resume   chan struct{}
	unsent   atomic.Bool // answers wait for the program's next call
}

const (
	// asideTick is how long the receiver gives programs before it takes over; while
	// they keep busy it looks less often.
	asideTick    = 250 * time.Microsecond
	asideTickMax = time.Millisecond
	// asideBan is how long it then stays, when packets had been waiting.
	asideBan = 20 * time.Millisecond
	// deferMax is how many packets may stay unanswered until the program's next call.
	// A bulk transfer is answered at once.
	deferMax = 4
)

// receiver is the shard's own goroutine.
func (s *shard) receiver() {
	defer s.wg.Done()
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	for {
		if s.lead.taken.CompareAndSwap(false, true) {
			if !s.receiveAlone() {
				return
			}
			s.lead.taken.Store(false)
		}
		if !s.standAside(tick) {
			return
		}
	}
}

// receiveAlone has the lead and receives until programs do it better. It is
// false when the link is closed.
func (s *shard) receiveAlone() bool {
	var ban clock.Time
	if s.drain() > 0 {
		ban = s.dev.now() + clock.Time(asideBan) // programs had left them lying
	}
	for {
		seen := s.lead.activity.Load()
		if s.link.Wait() != nil {
			return false
		}
		n := s.drain()
		s.linger(func() bool { return s.lead.activity.Load() != seen })
		parked := s.lead.parked.Load()
		active := s.lead.activity.Load() != seen
		if (n == 0 && active && parked == 0 || parked == 1) && s.dev.now() >= ban {
			return true
		}
	}
}

// linger goes on receiving in the middle of a bulk transfer, until nothing has
// come for a while or until done. Going to sleep between two buffers would have
// the sender wake this side for each, which costs it more than anything else that
// it does. With one processor it is the other side that needs it.
func (s *shard) linger(done func() bool) {
	if !s.bulk.Swap(false) {
		return
	}
	for i := 0; i < lingerPolls && !done(); i++ {
		if s.receive(false) > 0 {
			i = 0
		}
	}
}

// bulk reports whether a bulk transfer is under way.
func (d *Device) bulk() bool {
	for _, s := range d.shards {
		if s.bulk.Load() {
			return true
		}
	}
	return false
}

const (
	bulkPackets = 8   // at once are a bulk transfer
	lingerPolls = 200 // in vain, some 100 µs
)

// receive receives one batch, and answers as answer does. It returns the number
// of packets.
func (s *shard) receive(later bool) int {
	s.rxMu.Lock()
	r := s.take()
	s.rxMu.Unlock()
	if r.n > 0 {
		s.answer(&r, later)
	}
	return r.n
}

// drain receives all that is there. Traffic that does not pause it follows for a
// while only: the caller has other things to do.
func (s *shard) drain() int {
	total := 0
	for range drainBatches {
		n := s.receive(false)
		if n == 0 {
			break
		}
		total += n
	}
	return total
}

// drainBatches are more than a socket buffer holds of any but tiny packets.
const drainBatches = 64

// standAside leaves receiving to programs until none does it. It is false when
// the shard is closed.
func (s *shard) standAside(tick *time.Timer) bool {
	l := &s.lead
	l.aside.Store(true)
	defer s.comeBack()
	seen := l.activity.Load()
	for every := asideTick; ; every = min(2*every, asideTickMax) {
		tick.Reset(every)
		select {
		case <-tick.C:
		case <-l.resume:
		case <-s.done:
			return false
		}
		s.flushUnsent()
		now := l.activity.Load()
		quiet := now == seen
		seen = now
		switch {
		case !l.taken.Load():
			if quiet || l.parked.Load() > 0 {
				return true
			}
		case quiet:
			if !s.sleepWhileLed() {
				return false
			}
		}
	}
}

// comeBack ends standing aside. It is done with the lock held, under which
// programs leave answers unsent: none is left behind.
func (s *shard) comeBack() {
	s.mu.Lock()
	s.lead.aside.Store(false)
	s.flush()
	s.mu.Unlock()
}

// sleepWhileLed waits until the program that has the lead gives it up.
func (s *shard) sleepWhileLed() bool {
	l := &s.lead
	l.dormant.Store(true)
	if !l.taken.Load() && l.dormant.CompareAndSwap(true, false) {
		return true
	}
	select {
	case <-l.resume:
		return true
	case <-s.done:
		return false
	}
}

// unlead gives up the lead.
func (s *shard) unlead() {
	l := &s.lead
	l.taken.Store(false)
	if l.dormant.CompareAndSwap(true, false) || l.parked.Load() > 0 {
		select {
		case l.resume <- struct{}{}:
		default:
		}
	}
}

// taken is what a batch of packets was.
type taken struct {
	n        int
	now      clock.Time
	asked    bool // there were requests
	pressing bool // something wants an answer that does not wait
}

// take takes one batch from the link and handles it. The caller holds rxMu. If
// anything has come, take returns with mu held, and there may be something to
// send.
func (s *shard) take() (r taken) {
	n, err := s.link.Recv(s.rx)
	if err != nil || s.deaf {
		s.heard(err)
	}
	if n == 0 || err != nil {
		return taken{}
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return taken{}
	}
	r.n, r.now = n, s.dev.now()
	if n >= bulkPackets && s.dev.spin > 1 {
		s.bulk.Store(true)
	}
	packets := s.rx.Packets()
	for i := range packets {
		s.dispatch(&r, &packets[i])
	}
	if len(s.strays) > 0 {
		s.mu.Unlock()
		s.handOver()
		s.mu.Lock()
	}
	return r
}

// heard notes whether the link receives. The caller holds rxMu.
func (s *shard) heard(err error) {
	switch deaf := err != nil; {
	case deaf == s.deaf || errors.Is(err, transport.ErrClosed):
		return
	case deaf:
		s.dev.events.push(AsyncEvent{Kind: ib.EventPortError})
	default:
		s.dev.events.push(AsyncEvent{Kind: ib.EventPortActive})
	}
	s.deaf = !s.deaf
}

// answer sends what the packets of r call for, and gives up mu. With later, a few
// answers may wait for the program's next call, where they leave together with
// what it posts.
func (s *shard) answer(r *taken, later bool) {
	if later && r.n <= deferMax && s.lead.aside.Load() && !r.pressing && (!r.asked || s.patience.more(r.now)) {
		s.lead.unsent.Store(true)
	} else {
		s.flush()
	}
	s.mu.Unlock()
}

// takeMeanwhile takes what has come while a long batch was sent: the
// acknowledgements that let the next one go. It reports whether mu is held.
func (s *shard) takeMeanwhile() bool {
	if s.tx.Bytes() < longBatch {
		return false
	}
	if s.dev.spin > 1 {
		s.bulk.Store(true)
	}
	if !s.rxMu.TryLock() {
		return false
	}
	s.lead.activity.Add(1)
	r := s.take()
	s.rxMu.Unlock()
	return r.n > 0
}

// longBatch is how many bytes take so long to send that it is worth looking
// whether something has come.
const longBatch = 64 << 10

// handOver gives packets that belong to other shards to them. The network may
// coalesce packets to several queue pairs into one buffer, which arrives where
// the first one belongs. The caller holds rxMu.
func (s *shard) handOver() {
	for _, d := range s.strays {
		t := s.dev.shardOf(destQPN(d.Data))
		t.mu.Lock()
		if !t.closed {
			r := taken{now: t.dev.now()}
			t.dispatch(&r, d)
			t.flush()
		}
		t.mu.Unlock()
	}
	s.strays = s.strays[:0]
}

// destQPN reads the destination from a packet that has parsed.
func destQPN(b []byte) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(b[4:])) & rocev2.QPNMask
}

// flushUnsent sends what was left for a program's next call.
func (s *shard) flushUnsent() {
	if s.lead.unsent.Load() {
		s.mu.Lock()
		s.flush()
		s.mu.Unlock()
	}
}

// flushIdle is flushUnsent when a program polls and nothing has come: lone
// acknowledgements may wait on.
func (s *shard) flushIdle() {
	if s.lead.unsent.Load() {
		s.mu.Lock()
		s.flushBut(s.lead.aside.Load() && !s.patience.over(s.dev.now()), nil)
		s.mu.Unlock()
	}
}

// dispatch hands one datagram of r to its queue pair.
func (s *shard) dispatch(r *taken, d *transport.RxPacket) {
	if err := s.pkt.Parse(d.Data); err != nil {
		s.drops.malformed(err)
		return
	}
	if d.ICRC == transport.ICRCBad {
		s.drops.device[dropBadICRC]++
		return
	}
	q := s.qps.get(s.pkt.BTH.DestQPN)
	if q == nil {
		if s.dev.shardOf(s.pkt.BTH.DestQPN) != s {
			s.strays = append(s.strays, d)
			return
		}
		s.drops.device[dropUnknownQP]++
		return
	}
	if !q.fromPeer(d) {
		s.drops.device[dropSourcePort]++
		return
	}
	var kept uint64
	if !q.proven {
		kept = q.core.Stats().Kept
	}
	var reason qp.Drop
	if d.TrafficClass&ecnMask == ecnMarked {
		reason = q.core.HandleMarked(r.now, d.Src, &s.pkt)
	} else {
		reason = q.core.HandlePacket(r.now, d.Src, &s.pkt)
	}
	info, _ := s.pkt.BTH.Opcode.Info()
	if reason != qp.DropNone {
		s.drops.qp[reason]++
		if reason == qp.DropNotPresent {
			s.fetch(q)
		}
	} else if !q.proven && info.Role != rocev2.RoleNotify && q.core.Stats().Kept == kept {
		s.prove(q, d)
	}
	if info.Role == rocev2.RoleRequest {
		r.asked = true
	}
	r.pressing = r.pressing || q.core.Answering()
	s.count(q)
	s.ready.push(q)
}

// The ECN field of the traffic class, and Congestion Experienced (RFC 3168).
const (
	ecnMask   = 3
	ecnMarked = 3
)

// Progress handles what the link has received, on the caller's goroutine, and
// says whether there was anything. It never waits: when another goroutine is
// at it, it returns at once. Answers may stay unsent until Settle, the next
// Progress or the next post.
func (d *Device) Progress() bool {
	any := false
	for _, s := range d.shards {
		s.lead.activity.Add(1)
		n := 0
		if s.rxMu.TryLock() {
			r := s.take()
			s.rxMu.Unlock()
			if n = r.n; n > 0 {
				s.answer(&r, true)
			}
		}
		if n == 0 {
			s.flushIdle()
		}
		any = any || n > 0
	}
	d.yield.polled(any)
	return any
}

// Settle sends the answers that Progress has left.
func (d *Device) Settle() {
	for _, s := range d.shards {
		s.flushUnsent()
	}
}
