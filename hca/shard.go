package hca

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

const (
	storePackets = 1024 // requests that a shard keeps behind gaps, about 4.5 MiB

	rxDatagrams = 64                           // datagrams (or coalesced runs of them) taken from the link at once
	txArena     = 160 << 10                    // bytes of one transmit batch
	txBudget    = 64                           // batches sent on a caller's goroutine before the shard's own takes over
	txLongest   = clock.Time(time.Millisecond) // and for how long
)

// shard is a part of a device that works on its own: a link, the queue pairs
// whose packets arrive there, and their timers.
type shard struct {
	dev  *Device
	link transport.Link

	lead lead
	rxMu sync.Mutex // held from Recv until the batch is handled, so that packets keep their order
	rx   *transport.RxBatch

	strays []*transport.RxPacket // of rx, for other shards; under rxMu
	deaf   bool                  // the link fails to receive; under rxMu

	bulk atomic.Bool // more of a bulk transfer may come any moment

	mu      sync.Mutex // guards everything below
	qps     qpTable
	ready   turns
	delayed qpList // with an acknowledgement that waits for the next flush

	delayAcks bool // what the flush under way does with lone acknowledgements
	patience  patience
	peers     map[netip.Addr]*peer
	stopped   []*account // with queue pairs that their limit has stopped
	stoppedAt int        // of them, the next to be looked at
	store     *qp.Store  // what arrived behind gaps
	timers    timerHeap
	void      int // entries of it that are not valid
	timer     *time.Timer
	timerAt   clock.Time    // when the timer fires; 0 while it is not running
	sending   bool          // somebody owns tx
	partings  []parting     // last packets of queue pairs, for the next batch
	sent      chan struct{} // closed with the next batch that is sent, if somebody waits for that
	stuck     bool          // somebody has waited for it in vain
	tx        *transport.TxBatch
	out       pathWriter // into tx
	loop      loopback   // the other way, to the device itself
	pkt       rocev2.Packet
	drops     dropCounters
	txErrs    uint64

	loopPackets, loopBytes uint64

	past qp.Stats // of queue pairs that are closed

	closed bool

	kick chan struct{} // wakes the transmitter
	done chan struct{}
	wg   sync.WaitGroup
}

func newShard(d *Device, link transport.Link) *shard {
	tx := transport.NewTxBatch(txArena)
	s := &shard{
		dev: d, link: link,
		rx:    transport.NewRxBatch(rxDatagrams),
		tx:    tx,
		out:   pathWriter{tx: tx},
		peers: map[netip.Addr]*peer{},
		store: qp.NewStore(storePackets),

		ready:   newTurns(),
		delayed: qpList{kind: listDelayed},

		lead: lead{resume: make(chan struct{}, 1)},
		kick: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	if d.loopAddr.IsValid() {
		s.loop.init(d.loopAddr, d.caps.Port)
	}
	return s
}

func (s *shard) start() {
	s.timer = time.AfterFunc(time.Hour, s.onTimer)
	s.timer.Stop()
	s.wg.Add(2)
	go s.receiver()
	go s.transmitter()
}

// transmitter goes on sending when a caller has done its share.
func (s *shard) transmitter() {
	defer s.wg.Done()
	for {
		select {
		case <-s.kick:
			s.mu.Lock()
			s.flush()
			s.mu.Unlock()
		case <-s.done:
			return
		}
	}
}

// flush sends what the ready queue pairs have to say. It is called with mu
// held, gives it up while it sends, and returns with it held. When another
// goroutine is sending, that one goes on with what is ready now. After
// txBudget batches the transmitter continues in the caller's place.
func (s *shard) flush() { s.flushBut(false, nil) }

// flushBut is flush on behalf of caller, see pump. With acks it leaves lone
// acknowledgements for the next flush: a program that polls will be back in a
// moment, and what it has posted goes first.
func (s *shard) flushBut(acks bool, caller *QP) {
	if !acks || !s.sending { // the one who sends may be about to send them for somebody else
		s.delayAcks = acks
	}
	if !acks {
		s.lead.unsent.Store(false)
		s.patience.sent()
		for !s.delayed.empty() {
			s.ready.push(s.delayed.pop())
		}
	}
	s.pump(txBudget, caller)
}

// pump sends up to so many batches, unless another goroutine is at it. It stops
// early when caller, the queue pair that it is called for, if any, has nothing
// more to send, and after txLongest: what others send must not hold up the
// caller's program. Then the transmitter goes on in its place.
func (s *shard) pump(batches int, caller *QP) {
	if s.sending {
		return
	}
	var begun clock.Time
	for i := range batches {
		if s.closed || !s.wantsOut() {
			return
		}
		now := s.dev.now()
		if i == 0 {
			begun = now
		} else if caller != nil && !s.ready.has(caller) || now > begun+txLongest {
			break
		}
		s.tx.Reset()
		sent := s.takePartings()
		s.fill(now)
		idle := s.tx.Len() == 0 && s.loop.empty()
		s.sending = true
		if !s.loop.empty() {
			s.loopBack()
		}
		if s.tx.Len() > 0 {
			s.send()
		}
		s.sending = false
		if sent != nil {
			close(sent)
		}
		if idle {
			return
		}
	}
	if s.wantsOut() {
		s.kickTransmitter()
	}
}

// wantsOut reports whether there may be something to send, or somebody waits
// until there is not.
func (s *shard) wantsOut() bool { return len(s.partings) > 0 || s.sent != nil || s.next() != nil }

// send sends the batch. It is called with mu held, gives it up meanwhile, and
// returns with it held.
func (s *shard) send() {
	s.mu.Unlock()
	err := s.link.Send(s.tx)
	var small narrowed
	if err != nil {
		small = s.narrowed(err)
	}
	if !s.takeMeanwhile() {
		s.mu.Lock()
	}
	s.stuck = false
	if err != nil && !errors.Is(err, transport.ErrClosed) {
		s.txErrs++ // lost like any packet: the peer's silence will tell
		s.tellNarrowed(small)
	}
}

// kickTransmitter has the transmitter send what is ready.
func (s *shard) kickTransmitter() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// writer returns where the packets of q go.
func (s *shard) writer(q *QP) qp.PacketWriter {
	if q.local {
		return &s.loop
	}
	s.out.path = q.path
	return &s.out
}

// pathWriter writes packets of one path into a batch.
type pathWriter struct {
	tx   *transport.TxBatch
	path *transport.Path
}

func (w *pathWriter) Room() []byte { return w.tx.Room() }
func (w *pathWriter) Commit(n int) { w.tx.Commit(n, w.path) }

// settle takes note of what a queue pair wants besides sending: a timer, pages,
// an event raised.
func (s *shard) settle(q *QP) {
	s.count(q)
	s.fetch(q)
	if at, ok := q.core.PollTimeout(); ok {
		s.schedule(q, at)
	}
	for {
		e, ok := q.core.PollEvent()
		if !ok {
			return
		}
		q.raise(e)
	}
}

// raise puts an event of q into the device's queue, for Close to take out.
func (q *QP) raise(k ib.Event) {
	q.raised = true
	q.shard.dev.events.push(AsyncEvent{Kind: k, QP: q})
}

// close ends the shard's goroutines and its link.
func (s *shard) close() error {
	s.mu.Lock()
	sent := s.sendPartings()
	s.mu.Unlock()
	s.await(sent)
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	s.mu.Unlock()
	close(s.done)
	err := s.link.Close()
	s.wg.Wait()
	return err
}
