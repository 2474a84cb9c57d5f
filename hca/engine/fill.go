package engine

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// sender has the queue pairs write packets when it is their turn.
type sender struct {
	*shared
	acks delayedAcks
	link linkWriter
	mix  mixedWriter
}

func newSender(s *shared) sender {
	return sender{
		shared: s,
		acks:   delayedAcks{turns: &s.turns},
		link:   linkWriter{shared: s},
	}
}

// fill fills a batch with packets of some classes.
func (s *sender) fill(now clock.Time, out *transport.TxBatch, classes Classes) {
	s.link.batch = out
	if len(s.finals.packets) > 0 {
		s.finals.put(out, classes)
	}
	for q := s.next(classes); q != nil; q = s.next(classes) {
		if q.quiet && int(q.turn) >= q.packetCost() {
			if out.Room() == nil {
				break
			}
			s.pass(now, q)
		} else if !s.pull(now, q) {
			break
		}
	}
	s.link.batch, s.link.q = nil, nil
}

// settle ends the quiet turns that come first, and reports whether there is
// another one.
func (s *sender) settle() bool {
	q := s.next(AllClasses)
	for ; q != nil && q.quiet; q = s.next(AllClasses) {
		s.pass(s.now, q)
	}
	return q != nil
}

// next returns the queue pair of some classes whose turn it is to send, nil if
// there is none.
func (s *sender) next(classes Classes) *QP {
	if len(s.peers.limited) > 0 {
		s.peers.admit(&s.turns)
	}
	return s.turns.front(classes)
}

// pass ends the turn of q, which has nothing to send.
func (s *sender) pass(now clock.Time, q *QP) {
	allowance := q.allowance()
	s.peers.endAdmitted(q, false)
	s.turns.of(q.class).done()
	if allowance == 0 {
		s.peers.stop(q, false)
	}
	if at, ok := q.core.Deadline(); ok {
		s.timers.schedule(now, q, at)
	}
}

// pull takes packets from q, up to what is left of its turn. It reports whether
// the batch has room for more.
func (s *sender) pull(now clock.Time, q *QP) bool {
	out := qp.Writer(&s.link)
	if s.link.q = q; q.loops {
		out = s.loopWriter(q)
	}
	turns := s.turns.of(q.class)
	cost := q.packetCost()
	bytes := q.allowance()
	for int(q.turn) >= cost {
		l := qp.Limit{Packets: int(q.turn) / cost, Bytes: bytes, DelayAck: s.acks.on && !q.local, AckFirst: s.acks.first || !s.cfg.LeadAcks}
		p := q.core.Poll(now, l, out)
		bytes -= p.Bytes
		q.count(p.InFlight, p.Silent) // it has its turn already
		if p.Raised {
			q.tell(s.sink)
		}
		q.quantum -= p.Bytes
		switch {
		case p.Packets == l.Packets:
			continue // small ones take less of the turn
		case p.Full:
			if q.local {
				// What it waits for comes at once: the others
				// would have no turn.
				s.peers.endAdmitted(q, true)
				turns.rotate()
			}
			return false
		}
		allowance := q.allowance()
		if allowance > 0 && p.Blocked { // the limit is reached, and there is the share
			bytes = allowance
			continue
		}
		s.peers.endAdmitted(q, p.Blocked)
		turns.done()
		if allowance == 0 {
			s.peers.stop(q, false)
		}
		if p.AckDelayed && !q.delayed {
			q.delayed = true
			s.acks.waiting = append(s.acks.waiting, q)
		}
		if p.Deadline != 0 {
			s.timers.schedule(now, q, p.Deadline)
		}
		return true
	}
	s.peers.endAdmitted(q, true)
	turns.rotate()
	return true
}

// linkWriter writes packets of one queue pair into a batch, and takes them from
// its turn.
type linkWriter struct {
	*shared
	batch *transport.TxBatch
	q     *QP
}

func (w *linkWriter) Room() []byte { return w.batch.Room() }

func (w *linkWriter) Commit(n int, to *ib.AddressVector, k qp.PacketKind) {
	path := w.q.path
	switch {
	case to != nil:
		path = w.paths.of(to)
	case k == qp.OrdinaryPacket:
	case k == qp.KernelFlush:
		path = w.q.peer.linuxPath(w.cfg.Addr, path)
	case k == qp.NoticePacket:
		path = noticePath(&w.cfg, &w.paths, w.q)
	}
	w.batch.Commit(n, path)
	w.q.turn -= int32(max(n+rocev2.ICRCLen, minTurnCost))
}

// loopWriter returns where the packets of q go, some of which pass inside the
// engine.
func (s *sender) loopWriter(q *QP) qp.Writer {
	s.loop.q, s.loop.spi = q, q.spi()
	if q.local {
		return &s.loop
	}
	s.mix.link = &s.link
	return &s.mix
}

// mixedWriter writes datagrams of one queue pair, of which some may be for the
// own address. Where one goes is known when it is written: then it moves.
type mixedWriter struct{ link *linkWriter }

func (w *mixedWriter) Room() []byte {
	if w.link.loop.Room() == nil {
		return nil
	}
	return w.link.Room()
}

func (w *mixedWriter) Commit(n int, to *ib.AddressVector, k qp.PacketKind) {
	if to == nil || w.link.paths.of(to).Dst != w.link.loop.addr || !w.link.cfg.inDevice(destination(w.link.Room())) {
		w.link.Commit(n, to, k)
		return
	}
	copy(w.link.loop.Room(), w.link.Room()[:n])
	w.link.loop.Commit(n, to, k)
}

// destination reads the queue pair that a packet is for.
func destination(b []byte) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(b[4:])) & rocev2.QPNMask
}
