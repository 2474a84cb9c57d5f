package engine

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// Filled is what one Fill did besides filling the batch.
type Filled struct {
	LoopPackets int // packets that passed inside the engine
	LoopBytes   int // of these, BTH to ICRC

	// Misrouted are packets of these that belong to other shards. They are
	// valid until the next call of a method of the engine.
	Misrouted []transport.RxPacket
}

// Fill fills out, which is empty, with the packets of whose turn it is, until
// it is full or there is nothing left to send. Packets to the own address pass
// inside the engine; what they call for goes with the next call. So the driver
// calls Fill until Pending reports false.
func (e *Engine) Fill(now clock.Time, out *transport.TxBatch) Filled {
	return FillClasses(e, now, out, AllClasses)
}

// Pending reports whether there may be something to send.
func (e *Engine) Pending() bool { return len(e.finals) > 0 || e.next(AllClasses) != nil }

// next returns the queue pair of some classes whose turn it is to send, nil if
// there is none.
func (e *Engine) next(classes Classes) *QP {
	if len(e.peers.limited) > 0 {
		e.peers.admit(&e.turns)
	}
	return e.turns.front(classes)
}

// linkWriter writes packets of one queue pair into a batch, and takes them from
// its turn.
type linkWriter struct {
	batch *transport.TxBatch
	paths *paths // of datagrams
	cfg   *Config
	q     *QP
}

func (w *linkWriter) Room() []byte { return w.batch.Room() }

func (w *linkWriter) Commit(n int, to *ib.AddressVector) {
	path := w.q.path
	if to != nil {
		path = w.paths.of(to)
	}
	w.batch.Commit(n, path)
	w.q.turn -= int32(max(n+rocev2.ICRCLen, minTurnCost))
}

// CommitFlush implements conn.FlushWriter.
func (w *linkWriter) CommitFlush(n int) {
	path := w.q.path
	w.q.path = w.q.peer.linuxPath(w.cfg.Addr, path)
	w.Commit(n, nil)
	w.q.path = path
}

// CommitNotice implements conn.NoticeWriter.
func (w *linkWriter) CommitNotice(n int) {
	path := w.q.path
	w.q.path = noticePath(w.cfg, w.paths, w.q)
	w.Commit(n, nil)
	w.q.path = path
}

// writer returns where the packets of q go.
func (e *Engine) writer(q *QP) qp.Writer {
	if q.local {
		e.loop.q = q
		return &e.loop
	}
	e.out.q = q
	if e.loop.addr.IsValid() && !q.core.Connected() {
		return &e.mixed
	}
	return &e.out
}

// destination reads the queue pair that a packet is for.
func destination(b []byte) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(b[4:])) & rocev2.QPNMask
}

// mixedWriter writes datagrams of one queue pair, of which some may be for the
// own address. Where one goes is known when it is written: then it moves.
type mixedWriter struct{ e *Engine }

func (w *mixedWriter) Room() []byte {
	if w.e.loop.Room() == nil {
		return nil
	}
	return w.e.out.Room()
}

func (w *mixedWriter) Commit(n int, to *ib.AddressVector) {
	e := w.e
	if to == nil || e.paths.of(to).Dst != e.loop.addr || !e.cfg.inDevice(destination(e.out.Room())) {
		e.out.Commit(n, to)
		return
	}
	copy(e.loop.Room(), e.out.Room()[:n])
	e.loop.q = e.out.q
	e.loop.Commit(n, to)
}

// pull takes packets from q, up to what is left of its turn. It reports whether
// the batch has room for more.
func (e *Engine) pull(now clock.Time, q *QP) bool {
	out := e.writer(q)
	turns := e.turns.of(q.class)
	cost := q.packetCost()
	bytes := q.allowance()
	for int(q.turn) >= cost {
		l := qp.Limit{Packets: int(q.turn) / cost, Bytes: bytes, DelayAck: e.acks.on && !q.local, AckFirst: e.acks.first || !e.cfg.LeadAcks}
		p := q.core.Poll(now, l, out)
		bytes -= p.Bytes
		q.count(p.InFlight, p.Silent) // it has its turn already
		if p.Raised {
			q.tell(e.sink)
		}
		q.quantum -= p.Bytes
		switch {
		case p.Packets == l.Packets:
			continue // small ones take less of the turn
		case p.Full:
			if q.local {
				// What it waits for comes at once: the others
				// would have no turn.
				e.peers.endAdmitted(q, true)
				turns.rotate()
			}
			return false
		}
		allowance := q.allowance()
		if allowance > 0 && p.Blocked { // the limit is reached, and there is the share
			bytes = allowance
			continue
		}
		e.peers.endAdmitted(q, p.Blocked)
		turns.done()
		if allowance == 0 {
			e.peers.stop(q, false)
		}
		if p.AckDelayed {
			e.acks.waiting.push(q)
		}
		if at, ok := q.core.Deadline(); ok {
			e.timers.schedule(now, q, at)
		}
		return true
	}
	e.peers.endAdmitted(q, true)
	turns.rotate()
	return true
}

// count records what q has in flight now.
func (e *Engine) count(q *QP) {
	if q.count(q.core.InFlight()) {
		e.turns.push(q)
	}
}
