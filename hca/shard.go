package hca

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// shared is what the shards of a device share.
type shared struct {
	base      time.Time // time 0 of the engines, and of Now
	driver    Driver    // has the time instead; nil: there is none
	random    func() uint32
	spin      int // how many times a waiting program polls before it parks
	events    *eventHub
	pager     *pager
	moderator moderator
	handlers  handlers
	domains   domains
	yield     yielder
	failed    atomic.Bool   // EventDeviceFatal was raised
	broken    chan struct{} // closed then: no goroutine waits for ever
	wake      atomic.Bool   // wakeLink of some shard is set
	shards    []*shard

	// Shard i has the queue pairs whose number is slot+i modulo slots.
	slot, slots int

	// groupRoutes says which shards have queue pairs in which multicast
	// groups. It is replaced, never changed; nil with one shard.
	groupRoutes atomic.Pointer[map[netip.Addr][]*shard]
}

// shard is a part of a device that works on its own: a link, the engine that
// its packets are for, and the engine's timer.
type shard struct {
	*shared
	link   transport.Link
	driven *Driven // nil without a driver
	alarm  alarm

	poller    poller
	rxMu      sync.Mutex // held from Recv until the batch is handled, so that packets keep their order
	rx        *transport.RxBatch
	portError bool  // the link fails to receive; under rxMu
	vigil     vigil // of the poller

	asked    atomic.Bool  // peers have asked for something since a program has said that it posts
	watching atomic.Bool  // a program watches
	watched  vigil        // of that
	posts    atomic.Int32 // of a program since it has waited; up to sleepless
	answered atomic.Bool  // what a program has polled last were answers alone, and it has neither polled nor posted since
	pollsOn  pollsOn      // up to mostPollsOn

	wakeLink  atomic.Bool // a goroutine blocks in the link's Wait, and is to be woken
	bulk      atomic.Bool // more of a bulk transfer may come any moment
	lingering lingering   // how long to wait for it
	forwarded forwarded   // by other shards

	mu      sync.Mutex // guards everything below; see lock and unlock
	eng     *engine.Engine
	sending bool               // a goroutine, or the driver, owns tx
	tx      *transport.TxBatch // nil while none sends
	sent    chan struct{}      // closed with the next batch that is sent, if a goroutine waits for that
	stuck   bool               // a goroutine has waited for it without result
	txErrs  uint64
	closed  bool

	kick chan struct{} // wakes the transmitter
	done chan struct{}
	wg   sync.WaitGroup
}

// rxDatagrams is how many datagrams, or coalesced runs of them, are taken from
// the link at once.
const rxDatagrams = 64

func newShard(sh *shared, link transport.Link, c engine.Config) *shard {
	s := &shard{
		shared: sh, link: link,
		rx:     transport.NewRxBatch(rxDatagrams),
		poller: newPoller(),
		kick:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	if l, ok := link.(transport.PlacingLink); ok {
		l.SetPlacer(&placer{s: s})
	}
	c.Sink = s
	s.eng = engine.New(c)
	return s
}

func (s *shared) now() clock.Time {
	if s.driver != nil {
		return s.driver.Now()
	}
	return clock.Time(time.Since(s.base))
}

// lock locks the shard.
func (s *shard) lock() { s.mu.Lock() }

// unlock gives up the lock, as unlockBriefly does, and then calls the handlers
// of completion queues.
func (s *shard) unlock() {
	unlockBriefly(s)
	s.handlers.run()
}

// unlockBriefly gives up the lock of s for a moment, in the middle of
// something. Then it does what may be a system call: it arms the timer and
// wakes a program that blocks in the link, and a receiver that must look after
// answers.
func unlockBriefly(s *shard) {
	if s.driven != nil {
		s.driven.unlock()
		return
	}
	at, timed := s.eng.Deadline()
	timed = timed && !s.closed
	s.mu.Unlock()
	if timed {
		s.alarm.set(at, s.now)
	}
	s.wakePoller()
	s.poller.rouse()
	if s.moderator.earlier.Load() {
		s.moderator.setAlarm()
	}
}

// wakePoller wakes the programs that block in a link and are to be woken.
func (s *shared) wakePoller() {
	if !s.wake.Load() || !s.wake.Swap(false) {
		return
	}
	for _, t := range s.shards {
		if t.wakeLink.Swap(false) {
			t.link.Wake()
		}
	}
}

// kickTransmitter has the transmitter handle what was forwarded and send what
// there is.
func (s *shard) kickTransmitter() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// Event implements engine.Sink.
func (s *shard) Event(q *engine.QP, k ib.Event) {
	if user, ok := q.User.(*QP); ok {
		user.owner.events.push(event{k, user})
	}
}

// Fetch implements engine.Sink.
func (s *shard) Fetch(q *engine.QP, f qp.Fetch) {
	if user, ok := q.User.(*QP); ok {
		s.pager.add(pageJob{f, user.owner, fetching{s, q}})
	}
}
