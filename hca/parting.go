package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// The rule for acknowledgements: what a queue pair has executed, of which its
// program may have been told, is acknowledged before Close, or Modify to ERR or
// RESET, returns. The packets that say so are made when the queue pair goes, do
// not depend on it any more, and come first in the next batch.

// parting is a packet of a queue pair that goes: an acknowledgement or a NAK.
type parting struct {
	data  [32]byte
	n     int
	path  *transport.Path
	local bool
}

// partWait is how long somebody waits for a link that is full. Then the others
// do not, until it has taken a batch.
const partWait = time.Second

// part makes the last packets of q. All else that it would have to say is
// dropped. The caller holds mu.
func (s *shard) part(q *QP) {
	if q.path == nil {
		return
	}
	p := parting{path: q.path, local: q.local}
	for p.n = q.core.PollFinal(p.data[:]); p.n > 0; p.n = q.core.PollFinal(p.data[:]) {
		s.partings = append(s.partings, p)
	}
}

// sendPartings sends the last packets that wait, or returns what to await when
// another goroutine will, or has an acknowledgement in the batch that it is about
// to hand to the link. The caller holds mu, which is given up meanwhile.
func (s *shard) sendPartings() <-chan struct{} {
	if len(s.partings) > 0 && !s.sending {
		s.pump(1, nil)
	}
	if len(s.partings) > 0 || s.sending {
		return s.nextBatch()
	}
	return nil
}

// giveTurn gives q a turn if it has something to say. The caller holds mu, which
// is given up meanwhile.
func (s *shard) giveTurn(q *QP) {
	switch {
	case !s.ready.has(q):
	case !s.sending:
		s.pump(1, nil)
	default:
		sent := s.nextBatch()
		s.mu.Unlock()
		s.await(sent)
		s.mu.Lock()
	}
}

// nextBatch returns a channel that is closed when all last packets that wait now,
// and one batch at least, were handed to the link; nil if that hangs.
func (s *shard) nextBatch() <-chan struct{} {
	if s.stuck || s.closed {
		return nil
	}
	if s.sent == nil {
		s.sent = make(chan struct{})
	}
	return s.sent
}

// await waits for a batch, but not for ever. The caller does not hold mu.
func (s *shard) await(sent <-chan struct{}) {
	if sent == nil {
		return
	}
	t := time.NewTimer(partWait)
	defer t.Stop()
	select {
	case <-sent:
	case <-s.done:
	case <-t.C:
		s.mu.Lock()
		s.stuck = true
		s.mu.Unlock()
	}
}

// takePartings puts the last packets of queue pairs into the batch, and returns
// what to close when it was sent.
func (s *shard) takePartings() chan struct{} {
	for i := range s.partings {
		p := &s.partings[i]
		if p.local {
			if room := s.loop.Room(); room != nil {
				s.loop.Commit(copy(room, p.data[:p.n]))
				continue
			}
		} else if room := s.tx.Room(); room != nil {
			s.tx.Commit(copy(room, p.data[:p.n]), p.path)
			continue
		}
		s.partings = append(s.partings[:0], s.partings[i:]...)
		return nil
	}
	clear(s.partings)
	s.partings = s.partings[:0]
	sent := s.sent
	s.sent = nil
	return sent
}
