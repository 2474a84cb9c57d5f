package fault

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// arenaBytes is the room of a batch towards the inner link.
const arenaBytes = 256 << 10

// Link wraps a link. It is a transport.Link.
type Link struct {
	transport.Wrapper
	done chan struct{} // closed by Close
	once sync.Once

	tx txSide
	rx rxSide
}

// txSide is the state of Send. Its lock is held over the inner Send, which
// blocks; it is a channel because a goroutine that waits for a mutex would stop
// the time of a synctest bubble.
type txSide struct {
	lock chan struct{}
	judge
	hold  holding[txPacket]
	view  transport.TxBatch // a stretch of the caller's batch
	out   *transport.TxBatch
	other *transport.TxBatch // for packets of the other kind: sealed ones, or those in clear; nil until there is one
	index []int              // of each packet of out, in the caller's batch; -1 = held earlier
	fail  transport.SendError
	err   error
}

type txPacket struct {
	data  []byte
	path  *transport.Path
	whole bool // it is sealed
}

// rxSide is the state of Recv and Wait.
type rxSide struct {
	mu sync.Mutex
	judge
	hold  holding[transport.RxPacket]
	spill []transport.RxPacket // did not fit into the caller's batch
	in    *transport.RxBatch

	due     chan struct{} // holds a token when a held packet may be due
	kick    chan struct{} // asks the pump to wait on the inner link
	woke    chan error    // the pump's answer
	pumping bool          // kicked and not answered; belongs to the waiter
	pump    sync.WaitGroup
	start   sync.Once
}

var _ transport.Link = (*Link)(nil)

// New wraps inner. seed decides rules with a Rate and what is corrupted.
func New(inner transport.Link, seed uint64, rules ...Rule) *Link {
	l := &Link{Wrapper: transport.Wrapper{Link: inner}, done: make(chan struct{})}
	l.tx.lock = make(chan struct{}, 1)
	l.tx.rng = rand.New(rand.NewPCG(seed, uint64(Tx)))
	l.tx.hold.fire = l.sendDue
	l.tx.out = transport.NewTxBatch(arenaBytes)
	l.rx.rng = rand.New(rand.NewPCG(seed, uint64(Rx)))
	l.rx.due = make(chan struct{}, 1)
	l.rx.kick = make(chan struct{}, 1)
	l.rx.woke = make(chan error, 1)
	l.rx.hold.fire = l.signal
	l.SetRules(rules...)
	return l
}

// SetRules replaces the rules; they count from zero. Packets held back stay.
func (l *Link) SetRules(rules ...Rule) {
	l.tx.acquire()
	l.tx.set(Tx, rules)
	l.tx.release()
	l.rx.mu.Lock()
	l.rx.set(Rx, rules)
	l.rx.mu.Unlock()
}

// Counts returns what was done in each direction.
func (l *Link) Counts() (tx, rx Counts) {
	l.tx.acquire()
	tx = l.tx.counts
	l.tx.release()
	l.rx.mu.Lock()
	defer l.rx.mu.Unlock()
	return tx, l.rx.counts
}

// Close closes the inner link. Packets held back are lost.
func (l *Link) Close() error {
	err := l.Link.Close()
	l.once.Do(func() {
		close(l.done)
		l.tx.acquire()
		l.tx.hold.stop()
		l.tx.release()
		l.rx.mu.Lock()
		l.rx.hold.stop()
		l.rx.mu.Unlock()
		// No pump starts any more; the one that runs was woken by
		// Close.
		l.rx.start.Do(func() {})
		l.rx.pump.Wait()
	})
	return err
}

func (s *txSide) acquire() { s.lock <- struct{}{} }
func (s *txSide) release() { <-s.lock }

// Send passes b to the inner link, as the rules have it.
func (l *Link) Send(b *transport.TxBatch) error {
	s := &l.tx
	s.acquire()
	defer s.release()
	s.begin()
	if s.onlyDrops && len(s.hold.items) == 0 {
		l.sendRest(b)
		return s.result()
	}
	now := time.Now()
	for i := range b.Len() {
		sealed, _ := b.Sealed(i)
		r := s.decide(sealed, len(s.hold.items))
		if r != nil && (r.Action == Delay || r.Action == Reorder) {
			data, path := b.ToCommit(i)
			s.hold.add(txPacket{data: bytes.Clone(data), path: path, whole: b.NeedsNoICRC()}, r, now)
			continue
		}
		if r == nil || r.Action != Drop {
			l.forward(b, i, r)
		}
		s.hold.passed(l.emit)
	}
	l.flush()
	s.hold.arm(now)
	return s.result()
}

// sendRest sends what is left of b when packets are dropped, in stretches and
// without copying.
func (l *Link) sendRest(b *transport.TxBatch) {
	s := &l.tx
	first := 0
	for i := range b.Len() {
		sealed, _ := b.Sealed(i)
		if s.decide(sealed, 0) != nil {
			l.sendStretch(b, first, i)
			first = i + 1
		}
	}
	l.sendStretch(b, first, b.Len())
}

func (l *Link) sendStretch(b *transport.TxBatch, first, last int) {
	s := &l.tx
	if first == last || s.err != nil {
		return
	}
	b.View(&s.view, first, last)
	s.note(l.Link.Send(&s.view), func(i int) int { return first + i })
	s.view = transport.TxBatch{}
}

// note takes the result of a Send of the inner link, whose packet i is packet
// index(i) of the caller.
func (s *txSide) note(err error, index func(int) int) {
	if err == nil {
		return
	}
	var se *transport.SendError
	switch {
	case errors.As(err, &se):
		s.fail.Add(max(index(se.Index), 0), se.Failed, se.Err)
	default:
		s.err = err
	}
}

// begin prepares for a new call.
func (s *txSide) begin() {
	s.out.Reset()
	s.index = s.index[:0]
	s.fail, s.err = transport.SendError{}, nil
}

func (s *txSide) result() error {
	if s.err != nil {
		return s.err
	}
	return s.fail.Result()
}

// forward puts packet i of b into the outgoing batch.
func (l *Link) forward(b *transport.TxBatch, i int, r *ruleState) {
	s := &l.tx
	l.turnTo(b.NeedsNoICRC())
	copies := 1
	if r != nil && r.Action == Duplicate {
		copies = 2
	}
	for range copies {
		if !s.out.CopyPacket(b, i) {
			l.flush()
			s.out.CopyPacket(b, i)
		}
		s.index = append(s.index, i)
	}
	if r != nil && r.Action == Corrupt {
		s.out.Damage(s.out.Len()-1, s.rng.Uint32()|1)
	}
}

// emit puts a packet that was held into the outgoing batch.
func (l *Link) emit(p txPacket) {
	s := &l.tx
	l.turnTo(p.whole)
	room := s.out.Room()
	if room == nil {
		l.flush()
		room = s.out.Room()
	}
	s.out.Commit(copy(room, p.data), p.path)
	s.index = append(s.index, -1)
}

// turnTo has the outgoing batch be one for sealed packets, or for those in
// clear, after what there is of the other kind.
func (l *Link) turnTo(whole bool) {
	s := &l.tx
	if s.out.NeedsNoICRC() == whole {
		return
	}
	l.flush()
	if s.other == nil { // out was for packets in clear
		s.other = transport.NewSealedBatch(arenaBytes)
	}
	s.out, s.other = s.other, s.out
}

// flush sends the outgoing batch and notes what failed, in the caller's count.
func (l *Link) flush() {
	s := &l.tx
	if s.out.Len() > 0 && s.err == nil {
		s.note(l.Link.Send(s.out), func(i int) int { return s.index[i] })
	}
	s.out.Reset()
	s.index = s.index[:0]
}

// sendDue sends the packets whose time has come. What fails now has no caller
// to be told; the inner link counts it.
func (l *Link) sendDue() {
	s := &l.tx
	s.acquire()
	defer s.release()
	s.begin()
	now := time.Now()
	s.hold.expire(now, l.emit)
	l.flush()
	s.hold.arm(now)
}
