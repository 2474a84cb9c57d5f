package hca

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/strict"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2"
)

// CQ is a completion queue: a ring that queue pairs fill and a program empties.
// Its methods may be called from any goroutine.
type CQ struct {
	owner  *Context
	config cqConfig
	checks *Checks // of the device; nil but in strict mode

	userData any // the layer above's; set once, before the queue is used

	mu      sync.Mutex
	ring    []ib.WC // a power of two, or empty; grows up to size
	size    int     // entries that the queue holds, a power of two
	head    uint32  // next to take
	tail    uint32  // next to fill
	seldom  *seldom // nil before the first use
	channel *CompChannel

	notified list.Element[CQ] // its place in the channel, whose lock guards it

	parker parker
	spin   atomic.Int32 // polls before parking: what has been worth while

	// pending mirrors how many entries there are, so that an empty poll
	// takes no lock.
	pending      atomic.Uint32
	handlerDue   atomic.Bool
	handlerCalls atomic.Int32 // asked for and not done
	handlerOver  bool         // the handler has learned that the queue is closed; guarded by handlerCalls

	// Guarded by mu, and here because there is room.
	armed  armState
	raised bool // a lost entry has raised an event, perhaps before Resize
	closed bool
	ended  bool // it is closed, or in strict mode an entry was lost

	foreign atomic.Bool // queue pairs of other shards than that of the vector complete into it
}

// seldom is what few completion queues need.
type seldom struct {
	back []ib.WC // come before the ring: taken, and put back
	lost Overrun // the first entry that was lost since the queue has its size
	moderated
}

// makeSeldom returns the seldom of the queue. The caller holds mu.
func (cq *CQ) makeSeldom() *seldom {
	if cq.seldom == nil {
		cq.seldom = new(seldom)
	}
	return cq.seldom
}

type armState uint8

const (
	notArmed armState = iota
	armedSolicited
	armedAny
)

// CreateCQ makes a completion queue of at least n entries. ch may be nil; else
// it is open and of the same device.
func (c *Context) CreateCQ(n int, ch *CompChannel, opts ...CQOption) (*CQ, error) {
	if err := checkRange("completion queue size", n, 1, c.dev.limits.CQE); err != nil {
		return nil, err
	}
	if ch != nil {
		if ch.owner.dev != c.dev {
			return nil, fmt.Errorf("completion channel: %w", ErrOtherDevice)
		}
		if _, err := ch.available(); err != nil {
			return nil, fmt.Errorf("completion channel: %w", err)
		}
	}
	config, err := c.dev.cqConfig(opts)
	if err != nil {
		return nil, err
	}
	cq := &CQ{owner: c, config: config, checks: c.dev.checks, channel: ch, size: ringSize(n)}
	cq.notified.Value = cq
	cq.parker.init(c.dev, config.shard)
	cq.spin.Store(int32(c.dev.spin))
	if err := c.adopt(cq, kindCQ); err != nil {
		return nil, err
	}
	return cq, nil
}

// ringSize returns the power of two that holds n entries.
func ringSize(n int) int { return 1 << bits.Len(uint(n-1)) }

// A ring gets an entry with the first completion, and then fewEntries. It
// doubles until it has all: most of many queues never hold more than a few, and
// those of idle connections one at a time.
const fewEntries = 4

// grow gives a full ring more entries. The caller holds mu.
func (cq *CQ) grow() {
	n := 1
	if len(cq.ring) > 0 {
		n = max(2*len(cq.ring), fewEntries)
	}
	cq.moveTo(make([]ib.WC, min(n, cq.size)))
}

// moveTo moves the entries to another ring, which holds them. The caller holds
// mu.
func (cq *CQ) moveTo(ring []ib.WC) {
	held := cq.tail - cq.head
	for i := range held {
		ring[i] = cq.ring[int(cq.head+i)&(len(cq.ring)-1)]
	}
	cq.ring, cq.head, cq.tail = ring, 0, held
}

// SetUserData attaches a value of the layer above, once, before any other use.
func (cq *CQ) SetUserData(v any) { cq.userData = v }

// UserData returns what SetUserData attached.
func (cq *CQ) UserData() any { return cq.userData }

// Device returns the device of the queue.
func (cq *CQ) Device() *Device { return cq.parker.dev }

// usable reports what keeps queue pairs of d from completing into the queue.
func (cq *CQ) usable(d *Device) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case cq.parker.dev != d:
		return ErrOtherDevice
	case cq.closed:
		return ErrClosed
	}
	return nil
}

// Cap returns the number of entries that the queue holds.
func (cq *CQ) Cap() int {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.size
}

// Complete implements qp.CompletionSink. It is called with a shard locked.
func (cq *CQ) Complete(c *ib.WC) bool {
	cq.mu.Lock()
	if held := int(cq.tail - cq.head); cq.ended || held == cq.size {
		cq.overflow(c)
		cq.mu.Unlock()
		return false
	} else if held == len(cq.ring) {
		cq.grow()
	}
	e := &cq.ring[int(cq.tail)&(len(cq.ring)-1)]
	*e = *c
	if cq.config.timestamps {
		e.Timestamp = cq.parker.dev.Now()
	}
	cq.tail++
	cq.pending.Store(cq.held())
	notify := cq.armed == armedAny || cq.armed == armedSolicited && (c.Solicited || c.Status != ib.StatusSuccess)
	ch := cq.channel
	if notify = notify && ch != nil && !cq.holdBack(c); notify {
		cq.notify()
	}
	cq.mu.Unlock()
	cq.parker.signalLocked()
	if cq.checks != nil {
		cq.checks.completed(c)
	}
	if cq.config.handler != nil {
		cq.handle()
	}
	if notify {
		ch.parker.signalLocked()
	}
	return true
}

// held returns the number of entries. The caller holds mu.
func (cq *CQ) held() uint32 {
	n := cq.tail - cq.head
	if s := cq.seldom; s != nil {
		n += uint32(len(s.back))
	}
	return n
}

// notify lists the queue in its channel, before Close takes it out. The caller
// holds mu, and then signals the channel's parker.
func (cq *CQ) notify() {
	cq.armed = notArmed
	if cq.seldom != nil {
		cq.seldom.waiting = 0
	}
	cq.channel.add(cq)
}

// overflow raises the event for an entry that finds no room, once (IBTA
// 11.6.3.2). The caller holds mu.
func (cq *CQ) overflow(c *ib.WC) {
	if cq.closed {
		return
	}
	s := cq.makeSeldom()
	if s.lost.Entries > 0 {
		return
	}
	s.lost = Overrun{QPN: c.QPN, Entries: cq.size}
	if cq.checks.On(strict.CQOverrun) {
		cq.ended = true
		cq.checks.overrun(cq, c)
	}
	cq.raised = true
	cq.owner.events.push(event{ib.EventCQError, cq}) // before Close takes it out
}

// Poll takes up to len(wc) completions and returns how many it took. It never
// waits.
func (cq *CQ) Poll(wc []ib.WC) int {
	if cq.pending.Load() == 0 {
		return 0
	}
	cq.mu.Lock()
	n := 0
	if s := cq.seldom; s != nil && len(s.back) > 0 {
		n = copy(wc, s.back)
		s.back = s.back[:copy(s.back, s.back[n:])]
	}
	again := n
	mask := uint32(len(cq.ring) - 1)
	for ; n < len(wc) && cq.head != cq.tail; n++ {
		wc[n] = cq.ring[cq.head&mask]
		cq.head++
	}
	left := cq.held()
	cq.pending.Store(left)
	cq.mu.Unlock()
	if cq.checks != nil {
		cq.checks.polled(wc[again:n])
	}
	if left > 0 {
		cq.parker.signal() // another waiter may have gone to sleep over these
	}
	return n
}

// PutBack puts back a completion that was taken and not delivered. It comes
// first again.
func (cq *CQ) PutBack(c ib.WC) {
	cq.mu.Lock()
	if !cq.closed {
		s := cq.makeSeldom()
		s.back = slices.Insert(s.back, 0, c)
		cq.pending.Store(cq.held())
	}
	cq.mu.Unlock()
	cq.parker.signal()
}

// PollProgress is Poll that first handles what the device has received, on the
// caller's goroutine, when the queue is empty.
func (cq *CQ) PollProgress(wc []ib.WC) int {
	n, _ := cq.pollProgress(wc)
	return n
}

// pollProgress is PollProgress that also says whether the device had anything.
func (cq *CQ) pollProgress(wc []ib.WC) (n int, progress bool) {
	if n := cq.Poll(wc); n > 0 {
		return n, true
	}
	if cq.config.handler != nil { // others receive for it
		return 0, false
	}
	any := false
	if s := cq.config.shard; s == nil || cq.foreign.Load() {
		any = cq.parker.dev.Progress()
	} else { // no queue pairs of other shards complete into it
		any = s.in.progress()
		s.yield.polled(any)
	}
	if !any {
		return 0, false
	}
	return cq.Poll(wc), true
}

// Wait takes at least one completion, waiting for it as long as ctx allows. It
// returns ErrNoRoom if wc is empty.
func (cq *CQ) Wait(ctx context.Context, wc []ib.WC) (int, error) {
	if len(wc) == 0 {
		return 0, ErrNoRoom
	}
	n := cq.pollSpinning(ctx, wc)
	for n == 0 {
		err := cq.parker.park(ctx, cq)
		if n = cq.Poll(wc); n == 0 && err != nil {
			return 0, err
		}
	}
	return n, nil
}

// pollSpinning polls for a short while, which saves going to sleep and being
// woken. How long it does so follows what came of it; in the middle of a bulk
// transfer it is longer.
func (cq *CQ) pollSpinning(ctx context.Context, wc []ib.WC) int {
	if cq.parker.dev.driven != nil {
		return cq.Poll(wc)
	}
	spin := wake.NewSpin(cq.parker.dev.spin, int(cq.spin.Load()))
	for spin.Next(bulkPolls(cq.parker.dev.parts)) {
		n, progress := cq.pollProgress(wc)
		if spin.Polled(progress); n > 0 {
			if left := int32(spin.Found()); left != cq.spin.Load() {
				cq.spin.Store(left)
			}
			return n
		}
		if progress && ctx.Err() != nil {
			break
		}
		runtime.Gosched()
	}
	cq.spin.Store(int32(spin.Failed()))
	return 0
}

// available implements waitable.
func (cq *CQ) available() (bool, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.held() > 0 {
		return true, nil
	}
	if cq.closed {
		return false, ErrClosed
	}
	return false, nil
}

// Done returns a channel that is closed with the queue.
func (cq *CQ) Done() <-chan struct{} { return cq.parker.prepare().done }

// Arm asks for one notification on the completion channel: for the next
// completion, or, with solicitedOnly, for the next receive whose sender
// solicited an event and for the next error (IBTA 11.4.2.2). To ask for any
// overrides to ask for solicited ones, and not the other way round. Completions
// that are already there raise none, so poll after arming.
func (cq *CQ) Arm(solicitedOnly bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if !solicitedOnly {
		cq.armed = armedAny
	} else if cq.armed == notArmed {
		cq.armed = armedSolicited
	}
}

// Close ends the queue and drops what is in it. Goroutines in Wait return
// ErrClosed; a queue pair that still completes into it goes to the error state.
// Its memory is free also while queue pairs or the program still hold it.
func (cq *CQ) Close() error {
	cq.mu.Lock()
	if cq.closed {
		cq.mu.Unlock()
		return nil
	}
	cq.closed, cq.ended = true, true
	cq.ring, cq.size, cq.head, cq.tail = nil, 0, 0, 0
	cq.pending.Store(0)
	ch, raised := cq.channel, cq.raised
	cq.channel = nil
	if s := cq.seldom; s != nil {
		s.back, s.waiting = nil, 0
	}
	cq.mu.Unlock()
	cq.parker.close()
	if ch != nil {
		ch.forget(cq)
	}
	if raised {
		cq.owner.events.forget(cq)
	}
	cq.owner.release(cq, kindCQ)
	if cq.config.handler != nil {
		cq.callHandler()
	}
	return nil
}

// holdBack reports whether moderation holds back the notification that a
// completion calls for. An error is told at once: nothing may follow it. The
// caller holds mu and a shard's lock.
func (cq *CQ) holdBack(c *ib.WC) bool {
	s := cq.seldom
	if s == nil {
		return false
	}
	m := &s.moderation
	if m.Count <= 1 || m.Period == 0 || c.Status != ib.StatusSuccess {
		return false
	}
	if s.waiting++; s.waiting >= m.Count {
		return false
	}
	if s.waiting == 1 {
		s.until = cq.parker.dev.now().Add(m.Period)
		if !s.timed {
			s.timed = true
			cq.parker.dev.moderator.add(cq, s.until)
		}
	}
	return true
}

// Overrun is a completion that was lost because its queue was full.
type Overrun struct {
	QPN     rocev2.QPN // whose completion it was
	Entries int        // how many the queue had room for; 0: none was lost
}

// CQOption adjusts a completion queue.
type CQOption func(*cqOptions)

// cqOptions is what the options say.
type cqOptions struct {
	cqConfig
	vectored bool
	vector   int
}

// cqConfig is what a completion queue is made with.
type cqConfig struct {
	shard      *shard // of the vector; nil: no vector
	handler    func(open bool)
	timestamps bool
}
