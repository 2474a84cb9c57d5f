package hca

import (
	"encoding/binary"
	"sync/atomic"
	"time"

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
	// asideTick is how long the receiver gives programs before it takes over.
	asideTick = 250 * time.Microsecond
	// asideBan is how long it then stays, when packets had been waiting.
	asideBan = 20 * time.Millisecond
	// deferMax is how many packets, and how many batches of them in a row, may stay
	// unanswered until the program's next call. A bulk transfer is answered at once.
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
	var ban qp.Time
	if s.drain() > 0 {
		ban = s.dev.now() + qp.Time(asideBan) // programs had left them lying
	}
	for {
		seen := s.lead.activity.Load()
		if s.link.Wait() != nil {
			return false
		}
		n := s.drain()
		parked := s.lead.parked.Load()
		active := s.lead.activity.Load() != seen
		if (n == 0 && active && parked == 0 || parked == 1) && s.dev.now() >= ban {
			return true
		}
	}
}

// drain receives all that is there.
func (s *shard) drain() int {
	s.rxMu.Lock()
	defer s.rxMu.Unlock()
	total := 0
	for {
		n := s.receive(false)
		if n == 0 {
			return total
		}
		total += n
	}
}

// standAside leaves receiving to programs until none does it. It is false when
// the shard is closed.
func (s *shard) standAside(tick *time.Timer) bool {
	l := &s.lead
	l.aside.Store(true)
	defer s.comeBack()
	seen := l.activity.Load()
	for {
		tick.Reset(asideTick)
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

// receive takes one batch from the link and handles it. The caller holds rxMu.
// With later, a few answers may wait for the program's next call, where they
// leave together with what it posts.
func (s *shard) receive(later bool) int {
	n, err := s.link.Recv(s.rx)
	if n == 0 || err != nil {
		return 0
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return 0
	}
	now := s.dev.now()
	packets := s.rx.Packets()
	for i := range packets {
		s.dispatch(now, &packets[i])
	}
	if later && n <= deferMax && s.lead.aside.Load() && s.deferred < deferMax {
		s.deferred++
		s.lead.unsent.Store(true)
	} else {
		s.deferred = 0
		s.flush()
	}
	s.mu.Unlock()
	s.handOver()
	return n
}

// handOver gives packets that belong to other shards to them. The network may
// coalesce packets to several queue pairs into one buffer, which arrives where
// the first one belongs. The caller holds rxMu.
func (s *shard) handOver() {
	for _, d := range s.strays {
		t := s.dev.shardOf(destQPN(d.Data))
		t.mu.Lock()
		if !t.closed {
			t.dispatch(t.dev.now(), d)
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

// dispatch hands one datagram to its queue pair.
func (s *shard) dispatch(now qp.Time, d *transport.RxPacket) {
	if err := s.pkt.Parse(d.Data); err != nil {
		s.drops.malformed(err)
		return
	}
	if d.ICRC == transport.ICRCBad {
		s.drops.device[dropBadICRC]++
		return
	}
	q := s.qps[s.pkt.BTH.DestQPN]
	if q == nil {
		if s.dev.shardOf(s.pkt.BTH.DestQPN) != s {
			s.strays = append(s.strays, d)
			return
		}
		s.drops.device[dropUnknownQP]++
		return
	}
	if reason := q.core.HandlePacket(now, d.Src, &s.pkt); reason != qp.DropNone {
		s.drops.qp[reason]++
	} else {
		s.recognise(q, d)
	}
	q.account()
	s.ready.push(q)
}

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
			n = s.receive(true)
			s.rxMu.Unlock()
		}
		if n == 0 {
			s.flushUnsent()
		}
		any = any || n > 0
	}
	return any
}

// Settle sends the answers that Progress has left. With soon, lone
// acknowledgements wait on, for the program will be back in a moment.
func (d *Device) Settle(soon bool) {
	for _, s := range d.shards {
		if s.lead.unsent.Load() {
			s.mu.Lock()
			s.flushBut(soon && s.lead.aside.Load())
			s.mu.Unlock()
		}
	}
}
