package hca

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

const (
	txArena    = 160 << 10                    // bytes of one transmit batch
	pacedArena = 12 << 10                     // the same where the link has a Pacer
	txBudget   = 64                           // batches sent on a caller's goroutine before the shard's own takes over
	txLongest  = clock.Time(time.Millisecond) // and for how long

	// longBatch is how many bytes take so long to send that it is worth
	// looking whether something has come; and how many that pass inside the
	// device let others have the lock in between.
	longBatch = 64 << 10
	longLoop  = 32 << 10

	// loopRounds is how many batches one sends on a caller's goroutine for
	// packets that pass inside the device: a request and its answer.
	loopRounds = 3
)

// maxSpareBatches is how many unused transmit batches are kept.
const maxSpareBatches = 8

// batchPool has transmit batches for all shards of the process: few of them
// send at any moment.
type batchPool struct {
	last  atomic.Pointer[transport.TxBatch] // the one that was put last, without the lock
	mu    sync.Mutex
	spare []*transport.TxBatch
}

var txBatches batchPool

func (p *batchPool) get() *transport.TxBatch {
	if b := p.last.Swap(nil); b != nil {
		return b
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.spare) - 1
	if last < 0 {
		return transport.NewTxBatch(txArena)
	}
	b := p.spare[last]
	p.spare[last], p.spare = nil, p.spare[:last]
	return b
}

func (p *batchPool) put(b *transport.TxBatch) {
	b.Reset()
	if p.last.CompareAndSwap(nil, b) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spare) < maxSpareBatches {
		p.spare = append(p.spare, b)
	}
}

// sender is the way out of a shard: the goroutine that has made work has the
// engine fill one batch after the other, and sends each without the lock. One
// goroutine at a time does so, or packets would swap.
type sender struct {
	*locked
	meanwhile func()          // takes what has come while a long batch was sent
	pacer     transport.Pacer // of the link, or nil

	// The lock guards what follows.
	sending bool               // a goroutine, or the driver, owns tx
	tx      *transport.TxBatch // while one sends, and kept while programs receive: they send again soon
	sent    chan struct{}      // closed with the next batch that is sent, if a goroutine waits for that
	stuck   bool               // a goroutine has waited for it without result
	txErrs  uint64
}

// transmit sends what the engine has to send, lone acknowledgements included.
// It is called with the lock held, gives it up while it sends, and returns with
// it held, like sync.Cond.Wait. When another goroutine is sending, that one
// goes on with what is ready now. After txBudget batches the transmitter
// continues in the caller's place.
func (s *sender) transmit() { s.transmitFor(0, nil, engine.AcksLeave) }

// defers records that answers wait for the program's next call. The shard is
// locked.
func (s *sender) defers() {
	if !s.side.has(wake.Late) {
		s.side.on(wake.Defers)
	}
}

// transmitFor is transmit at the time now, which is read when it is needed if
// it is 0, and on behalf of caller, see pump. Lone acknowledgements are left
// for the next call if the moment is one in which they wait: a program that
// polls will be back, and what it has posted goes first.
func (s *sender) transmitFor(now clock.Time, caller *engine.QP, acks engine.AckMoment) {
	if s.sending {
		acks |= engine.AcksBeside
	}
	if !s.eng.DelayAcks(now, acks) && (s.side.has(wake.Late) || s.side.has(wake.Prompt)) && s.side.on(wake.Sent)&wake.AckFirst != 0 {
		s.eng.DelayAcks(now, engine.AcksLeaveFirst)
	}
	if s.hasRoom() {
		s.pump(now, txBudget, caller)
	}
}

// hasRoom reports whether the link is to have more: if not, its Pacer calls
// when it is.
func (s *sender) hasRoom() bool { return s.pacer == nil || s.pacer.Room() }

// pump sends up to the given number of batches, unless another goroutine is at
// it. It stops early when caller, the queue pair that it is called for, if any,
// has nothing more to send, and after txLongest: what others send must not hold
// up the caller's program. Then the transmitter goes on in its place. It is
// called as transmit is.
func (s *sender) pump(now clock.Time, batches int, caller *engine.QP) {
	if s.sending || s.closed || !s.wantsOut() {
		return
	}
	s.sending = true
	if s.tx == nil {
		s.tx = s.takeBatch()
	}
	if now == 0 {
		now = s.now()
	}
	more := s.sendBatches(now, batches, caller)
	s.sending = false
	if s.side.has(wake.StandsBy) {
		s.tx.Reset()
	} else {
		s.giveBack()
	}
	if more {
		s.forwarded.tell()
	}
}

// takeBatch returns a batch. Where the link has a Pacer that is a short one of
// its own: else what one queue pair has ready waits before all others there.
func (s *sender) takeBatch() *transport.TxBatch {
	if s.pacer != nil {
		return transport.NewTxBatch(pacedArena)
	}
	return txBatches.get()
}

// giveBack gives the batch back to the process, unless it is in use.
func (s *sender) giveBack() {
	switch {
	case s.tx == nil || s.sending:
	case s.pacer != nil:
		s.tx.Reset()
	default:
		txBatches.put(s.tx)
		s.tx = nil
	}
}

// sendBatches does what pump says. It reports whether there may be more to
// send.
func (s *sender) sendBatches(now clock.Time, batches int, caller *engine.QP) (more bool) {
	begun, looped := now, false
	for i := range batches {
		if i > 0 {
			if s.closed || !s.wantsOut() || !s.hasRoom() {
				return false
			}
			now = s.now()
			answered := looped && i < loopRounds // the answers may come at once
			if caller != nil && !caller.Pending() && !answered || now > begun+txLongest {
				break
			}
		}
		if i > 0 {
			s.tx.Reset()
		}
		f := s.eng.Fill(now, s.tx, engine.AllClasses)
		if len(f.Misrouted) > 0 {
			s.forward(f.Misrouted)
		}
		if f.Held {
			s.defers()
		}
		looped = f.LoopPackets > 0
		var sent chan struct{}
		if s.sent != nil {
			sent = s.takeSent()
		}
		switch {
		case s.tx.Len() > 0:
			s.send()
		case f.LoopBytes >= longLoop:
			s.release()
			s.lock()
		}
		if sent != nil {
			close(sent)
		}
		if s.tx.Len() == 0 && f.LoopPackets == 0 {
			return false
		}
	}
	return s.wantsOut()
}

// wantsOut reports whether there may be something to send, or a goroutine waits
// until there is not.
func (s *sender) wantsOut() bool { return s.sent != nil || s.eng.Settle() }

// send sends the batch, and then takes what has come meanwhile if the batch is
// long: the acknowledgements that let the next one go. It is called as
// transmit is.
func (s *sender) send() {
	s.release()
	err := s.link.Send(s.tx)
	var big packetTooBig
	if err != nil {
		big = s.tooBig(err)
	}
	if s.tx.Bytes() >= longBatch {
		if s.spin > 1 {
			s.side.changeBulk(wake.Bulk.Came)
		}
		s.meanwhile()
	}
	s.lock()
	s.stuck = false
	if err != nil && !errors.Is(err, transport.ErrClosed) {
		s.txErrs++ // lost like any packet: the peer's silence will tell
		if big.peer.IsValid() {
			s.eng.PacketTooBig(big.peer, big.mtu)
		}
	}
}

// packetTooBig says that a path does not carry a packet any more.
type packetTooBig struct {
	peer netip.Addr
	mtu  rocev2.MTU // what it carries now
}

// tooBig finds out whether a batch could not be sent for the length of its
// packets. The caller owns tx and does not hold the lock: the system is asked.
func (s *sender) tooBig(err error) (p packetTooBig) {
	var failed *transport.SendError
	if !errors.Is(err, transport.ErrTooLong) || !errors.As(err, &failed) || failed.Index >= s.tx.Len() {
		return p
	}
	_, path := s.tx.Packet(failed.Index)
	return packetTooBig{peer: path.Dst, mtu: rocev2.LargestMTU(transport.ReadLinkMTU(s.link, path.Dst))}
}

// takeSent returns what to close when the batch is sent: goroutines that wait
// for the final packets of queue pairs wait until all are in a batch. It is
// called if one waits.
func (s *sender) takeSent() chan struct{} {
	if s.eng.FinalPackets() > 0 {
		return nil
	}
	sent := s.sent
	s.sent = nil
	return sent
}

// sendFinal sends the final packets that wait, or returns what to await when
// another goroutine will, or has an acknowledgement in the batch that it is
// about to hand to the link. It is called as transmit is.
func (s *sender) sendFinal() <-chan struct{} {
	if s.eng.FinalPackets() > 0 && !s.sending {
		s.pump(0, 1, nil)
	}
	if s.eng.FinalPackets() > 0 || s.sending {
		return s.nextBatch()
	}
	return nil
}

// giveTurn gives q a turn if it has something to send. It is called as
// transmit is.
func (s *sender) giveTurn(q *engine.QP) {
	switch {
	case !q.Pending():
	case s.driven != nil:
		s.driven.giveTurn(q)
	case !s.sending:
		s.pump(0, 1, nil)
	default:
		sent := s.nextBatch()
		s.unlock()
		s.await(sent)
		s.lock()
	}
}

// nextBatch returns a channel that is closed when all final packets that wait
// now, and one batch at least, were handed to the link; nil if that hangs.
func (s *sender) nextBatch() <-chan struct{} {
	if s.stuck || s.closed {
		return nil
	}
	if s.sent == nil {
		s.sent = make(chan struct{})
	}
	return s.sent
}

// await waits for a batch, but not for ever. The caller does not hold the lock.
func (s *sender) await(sent <-chan struct{}) {
	if sent == nil {
		return
	}
	t := time.NewTimer(finalWait)
	defer t.Stop()
	select {
	case <-sent:
	case <-s.done:
	case <-t.C:
		s.lock()
		s.stuck = true
		s.unlock()
	}
}

// transmitDelayed sends what was left for a program's next call.
func (s *sender) transmitDelayed() {
	if s.side.has(wake.Late) {
		s.lock()
		s.transmit()
		s.unlock()
	}
}

// transmitIdle is transmitDelayed when a program polls and nothing has come:
// lone acknowledgements may wait on.
func (s *sender) transmitIdle() {
	if s.side.has(wake.Late) {
		s.lock()
		if s.side.has(wake.StandsBy) {
			s.transmitFor(s.now(), nil, engine.AcksAtPoll)
		} else {
			s.transmit()
		}
		s.unlock()
	}
}
