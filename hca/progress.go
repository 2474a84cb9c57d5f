package hca

import (
	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/qp"
)

// drainBatches are more than a socket buffer holds of any but tiny packets.
const drainBatches = 64

// receive receives one batch and sends the answers. It returns the number of
// packets.
func (s *shard) receive() int {
	n, _ := s.receiveAs(true, false)
	return n
}

// receiveAs is receive for several callers. With wait it waits for another
// goroutine that receives. With later a few answers may wait for the program's
// next call, where they leave together with what it posts. It reports, too,
// whether a queue pair of the shard has taken any of the packets.
func (s *shard) receiveAs(wait, later bool) (n int, taken bool) {
	if wait {
		s.rxMu.Lock()
	} else if !s.rxMu.TryLock() {
		return 0, false
	}
	if n = s.recv(); n == 0 {
		s.rxMu.Unlock()
		return 0, false
	}
	s.lock()
	r, now := s.handle()
	s.rxMu.Unlock()
	if later && s.poller.standby.Load() && s.eng.AckDelay().MayWait(now, &r) {
		s.poller.delay()
	} else {
		if n >= bulkPackets {
			now = 0 // it took a while to handle them
		}
		s.flushFor(now, nil, false)
	}
	s.unlock()
	return n, r.Taken
}

// drain receives all that is there. Traffic that does not pause it follows for
// a while only: the caller has other things to do.
func (s *shard) drain() int {
	total := 0
	for range drainBatches {
		n := s.receive()
		if n == 0 {
			break
		}
		total += n
	}
	return total
}

// lookLonger goes on receiving until done, or for as long as that is worth
// more than to sleep: in the middle of a bulk transfer, and where packets come
// soon after each other. With one processor it is the other side that needs it.
//
// With later a few answers may wait, as in receiveAs, but not when it returns
// and is not done.
func lookLonger(s *shard, later bool, done func() bool) {
	if s.spin > 1 && !s.linger(done) {
		s.vigil.keep(s, later, done)
	}
	if later && !done() {
		s.flushDelayed()
	}
}

// progress receives what there is on the goroutine of a program that polls, and
// reports whether there was anything. It never waits.
func (s *shard) progress() bool {
	if s.driven != nil {
		return s.driven.poll()
	}
	s.poller.note()
	if take(s) > 0 {
		return true
	}
	if s.forwarded.any.Load() {
		s.lock()
		s.handleForwarded()
		s.flush()
		s.unlock()
		return true
	}
	s.flushIdle()
	return false
}

// take receives one batch for a program that polls. It returns the number of
// packets.
func take(s *shard) int {
	n, _ := s.receiveAs(false, true)
	if n > 0 && s.poller.took() {
		s.link.Wake()
	}
	return n
}

// flushDelayed sends what was left for a program's next call.
func (s *shard) flushDelayed() {
	if s.poller.delayed.Load() {
		s.lock()
		s.flush()
		s.unlock()
	}
}

// flushIdle is flushDelayed when a program polls and nothing has come: lone
// acknowledgements may wait on.
func (s *shard) flushIdle() {
	if s.poller.delayed.Load() {
		s.lock()
		s.flushFor(0, nil, s.poller.standby.Load() && !s.eng.AckDelay().Expired(s.now()))
		s.unlock()
	}
}

// onAlarm runs on a goroutine of its own when the earliest deadline has come.
func (s *shard) onAlarm() {
	s.lock()
	due := !s.closed && s.eng.Due(s.now())
	s.unlock()
	if due {
		// The answer may be there, and not have been received: on a
		// busy machine everything here may have stood still.
		s.drain()
	}
	s.lock()
	if due && !s.closed {
		s.eng.Advance(s.now())
	}
	s.alarm.wentOff() // until now it is not set anew
	if due {
		s.flush()
	}
	s.unlock()
}

// fetching is a queue pair of a shard that waits for memory.
type fetching struct {
	shard *shard
	q     *engine.QP
}

// fetched has the queue pair go on. The caller holds no lock.
func (w fetching) fetched(f qp.Fetch) {
	s := w.shard
	s.lock()
	if !s.closed && s.eng.Lookup(w.q.QPN()) == w.q {
		s.eng.Fetched(s.now(), w.q, f)
		s.flush()
	}
	s.unlock()
}
