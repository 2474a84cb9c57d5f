package hca

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/internal/heap"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// moderator gives the notifications of completion queues that moderation holds
// back, when their time has come. One timer serves all queues of a device. A
// queue is in the heap at most once: when its entry comes up it is asked anew.
type moderator struct {
	alarm   alarm
	now     func() clock.Time
	earlier atomic.Bool // the alarm is to be set to an earlier time

	mu   sync.Mutex
	heap heap.Heap[clock.Time, moderatedQueue]
}

// moderatedQueue is a completion queue.
type moderatedQueue interface {
	// timeUp gives the notification if its time has come. The result says
	// when to come again, if at all.
	timeUp(now clock.Time) (again clock.Time, ok bool)
}

// earliest returns when the first queue is to be asked, and whether one is.
func (m *moderator) earliest() (clock.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heap.Min()
}

// add has the queue asked at the time at. The caller holds a shard's lock, and
// the alarm is set when that is given up.
func (m *moderator) add(cq moderatedQueue, at clock.Time) {
	m.mu.Lock()
	first, any := m.heap.Min()
	m.heap.Push(at, cq)
	m.mu.Unlock()
	if !any || at < first {
		m.earlier.Store(true)
	}
}

// setAlarm sets the alarm to the earliest time.
func (m *moderator) setAlarm() {
	m.earlier.Store(false)
	if at, ok := m.earliest(); ok {
		m.alarm.set(at, m.now)
	}
}

// take takes a queue out whose time has come.
func (m *moderator) take(now clock.Time) moderatedQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.heap.Min(); !ok || at > now {
		return nil
	}
	_, cq := m.heap.Pop()
	return cq
}

// onAlarm runs on a goroutine of its own. Queues that are asked while they are
// being filled come again later, so that it ends.
func (m *moderator) onAlarm() {
	now := m.now()
	for cq := m.take(now); cq != nil; cq = m.take(now) {
		if at, again := cq.timeUp(now); again {
			m.mu.Lock()
			m.heap.Push(at, cq)
			m.mu.Unlock()
		}
	}
	m.alarm.wentOff()
	m.setAlarm()
}

// Limits of moderation, those of adapters.
const (
	MaxModerationCount  = 1<<16 - 1
	MaxModerationPeriod = (1<<16 - 1) * time.Microsecond
)

// Moderation is for how long the notification of an armed queue is held back:
// until there are Count completions that call for it, or until Period has
// passed since the first. It is off where either is 0.
type Moderation struct {
	Count  int
	Period time.Duration
}

// moderated is what moderation holds back.
type moderated struct {
	moderation Moderation
	waiting    int        // completions that call for the notification that is held back
	until      clock.Time // when it is given
	timed      bool       // the moderator has the queue in its heap
}
