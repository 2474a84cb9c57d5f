package cm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/verbs"
)

// manager runs the agent of one device: it gives it what the management queue
// pair receives, sends what it wants to send, and hands out its events.
//
// It has no goroutine that lasts. The goroutine that has received datagrams for
// it brings them (verbs.WithHandler). The one that holds the lock, or finds it
// free, handles them: none waits for the lock to do so. If they do not end, a
// goroutine is started to go on, and ends when there are none. Another kind
// closes the manager, or an ID, outside the lock.
type manager struct {
	dev   *verbs.Device
	slots uint16 // of the port that others have parts of; 0: it is the device's alone
	tasks task.Runner
	gsi   *gsi
	ports *ports
	base  time.Time // time 0 of the agent

	arrived atomic.Int32 // calls of the handler that are not looked after yet

	mu        sync.Mutex // guards what follows
	agent     *agent.Agent
	ids       map[agent.ID]sink
	listeners map[mad.ServiceID]sink
	timer     *task.Timer
	timerAt   clock.Time // when it goes off; 0: it is not set
	refused   uint64     // requests that only this package found wrong
	nudge     bool       // a waiter has its event
	crowded   bool       // there were very many half-open requests
	thinning  bool       // memory will be given back
	peers     acquaintances
	probes    map[netip.Addr]*portProbe
	controls  controls
	closed    bool       // nothing begins any more
	left      *task.Bell // that farewell waits for: a datagram may have been sent
	gone      bool       // nothing is sent and received any more
	forget    func()     // of the device's BeforeClose
}

// sink takes the events of an ID, or of a listener. It is called with the
// manager's lock held: it neither blocks nor calls the manager.
type sink interface {
	event(e *agent.Event)
	// over says that the manager is closed: no event will come.
	over()
}

// managers has the manager of each device that has one.
var managers struct {
	mu sync.Mutex
	of map[*verbs.Device]*manager
}

// managerOf returns the manager of a device, and makes it at first use.
func managerOf(dev *verbs.Device) (*manager, error) {
	managers.mu.Lock()
	defer managers.mu.Unlock()
	if m := managers.of[dev]; m != nil {
		return m, nil
	}
	adapter := verbs.HCA(dev)
	if adapter.Failed() {
		return nil, errOver(dev)
	}
	lease, shared := adapter.Port().Lease()
	var others reserver
	if shared {
		others = adapter.Port()
	}
	m := &manager{dev: dev, slots: uint16(lease.Slots), tasks: adapter.Tasks(), base: adapter.Tasks().Now(),
		ports: newPorts(adapter.Random, others, part{lease.Slot, lease.Slots}), ids: map[agent.ID]sink{}, listeners: map[mad.ServiceID]sink{}, probes: map[netip.Addr]*portProbe{}}
	m.controls.m = m
	m.agent = agent.New(agent.Config{GUID: mad.GUID(dev.Query().NodeGUID), Random: adapter.Random, Identity: mad.ECE(own),
		Shared: shared, Slot: uint8(lease.Slot), Hold: adapter.HoldQPN, Release: adapter.ReleaseQPN, Heard: adapter.Heard, Idle: m.controls.idle, Refusal: m.controls.refusal})
	m.timer = m.tasks.NewTimer(m.onTimer)
	m.lock() // until it is complete
	defer m.unlock()
	var err error
	if m.gsi, err = newGSI(dev, m.onCompletions); err != nil {
		m.closed, m.gone = true, true
		return nil, err
	}
	m.forget = dev.BeforeClose(m.close)
	if managers.of == nil {
		managers.of = map[*verbs.Device]*manager{}
	}
	managers.of[dev] = m
	return m, nil
}

// Start makes the manager of a device, if it has none: then peers that ask for
// what no program serves are answered, and need not wait until they give up.
// Each other use of the device makes it, too.
func Start(dev *verbs.Device) error {
	_, err := managerOf(dev)
	return err
}

func (m *manager) now() clock.Time { return clock.Time(m.tasks.Since(m.base)) + 1 }

// lock locks the manager.
func (m *manager) lock() { m.mu.Lock() }

// inlineRounds is how often a goroutine that gives up the lock handles what has
// come meanwhile, before another one does.
const inlineRounds = 4

// await waits for the event of a waiter, and receives for the device meanwhile
// if no other goroutine does.
func (m *manager) await(ctx context.Context, w *waiter) error {
	err := m.gsi.cq.Await(ctx, w.ready)
	switch {
	case err == nil && !w.over:
		return nil
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, task.ErrNoTask):
		return fmt.Errorf("cm: %w", err)
	}
	return m.errOver()
}

// unlock sends what there is to send, hands out events, and gives up the lock.
func (m *manager) unlock() {
	for range inlineRounds {
		m.settle()
		nudge := m.nudge
		m.nudge = false
		m.mu.Unlock()
		if nudge {
			m.gsi.cq.Nudge()
		}
		if m.arrived.Load() == 0 || !m.mu.TryLock() {
			return // the holder of the lock looks after it
		}
		m.receive()
	}
	// There is no end to it: another goroutine goes on.
	m.mu.Unlock()
	m.tasks.Go(m.onArrival)
}

// onCompletions is the handler of the completion queue.
func (m *manager) onCompletions(open bool) {
	if !open {
		// The device is closed without BeforeClose: its link has
		// failed, or the program closes it meanwhile.
		m.tasks.Go(m.close)
		return
	}
	m.arrived.Add(1)
	if m.mu.TryLock() {
		m.receive()
		m.unlock()
	}
}

func (m *manager) onArrival() {
	m.lock()
	m.receive()
	m.unlock()
}

// receive gives the agent what has arrived.
func (m *manager) receive() {
	m.arrived.Store(0)
	if m.gone {
		return
	}
	if m.left != nil {
		m.left.Ring()
	}
	now := m.now()
	more := m.gsi.poll(func(from verbs.GRH, b []byte) {
		m.agent.Receive(now, agent.Path{Local: from.Dst, Remote: from.Src,
			TrafficClass: from.TrafficClass, FlowLabel: from.FlowLabel}, b)
	})
	m.controls.receive()
	switch {
	case m.gsi.lost:
		if !m.closed {
			m.tasks.Go(m.close)
		}
	case more:
		m.arrived.Add(1)
	}
}

// settle brings out what the agent has to send and to tell, and sets the timer.
func (m *manager) settle() {
	if m.gone {
		return
	}
	m.hand()
	for m.controls.part() { // which has more to tell, and to send
		m.hand()
	}
	m.gsi.flush()
	m.setTimer()
	m.thin()
}

// hand hands out events, and MADs to be sent.
func (m *manager) hand() {
	for e, ok := m.agent.Event(); ok; e, ok = m.agent.Event() {
		m.dispatch(&e)
	}
	for b := m.gsi.room(); b != nil; b = m.gsi.room() {
		p, ok := m.agent.Send(b)
		if !ok {
			break
		}
		if p.Control != 0 {
			m.controls.send(p.Control, b)
			continue
		}
		m.gsi.push(verbs.AddressVector{DGID: p.Remote, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel})
	}
}

const (
	// crowd is how many half-open requests are a flood.
	crowd = 4096
	// thinAfter is how long after a flood its memory is given back. That
	// takes a collection, so it is not for the peer to say how often.
	thinAfter = 5 * time.Second
)

// thin gives the system back, some time after the end of a flood, the memory
// that it has taken. The collector alone would do so after minutes.
func (m *manager) thin() {
	n := m.agent.Stats().HalfOpen
	if m.crowded && n == 0 && !m.thinning {
		m.thinning = true
		m.tasks.AfterFunc(thinAfter, func() {
			debug.FreeOSMemory()
			m.lock()
			defer m.unlock()
			m.thinning = false
		})
	}
	m.crowded = n > crowd || m.crowded && n > 0
}

func (m *manager) dispatch(e *agent.Event) {
	if s := m.ids[e.ID]; s != nil {
		s.event(e)
		return
	}
	var service mad.ServiceID
	switch e.Kind {
	case agent.EventRequest:
		service = e.Request.ServiceID
	case agent.EventSIDRRequest:
		service = e.SIDRRequest.ServiceID
	default:
		return // of an ID that was released meanwhile
	}
	if s := m.listeners[service]; s != nil {
		s.event(e)
		return
	}
	verbs.HCA(m.dev).ReleaseQPN(e.QPN) // of a listener that was closed meanwhile
	m.agent.Release(m.now(), e.ID)
}

// setTimer has the agent called at its deadline. A timer that goes off too
// early is cheaper than one that is set for each message.
func (m *manager) setTimer() {
	at := m.agent.Deadline()
	if at == math.MaxInt64 || m.timerAt != 0 && m.timerAt <= at {
		return
	}
	m.timerAt = at
	m.timer.Reset(max(at.Sub(m.now()), 0))
}

func (m *manager) onTimer() {
	m.lock()
	m.timerAt = 0
	if !m.gone {
		m.agent.Advance(m.now())
	}
	m.unlock()
}

const (
	// farewellWait is how long nothing leaves until farewell gives up.
	farewellWait = 100 * time.Millisecond
	// farewellMost is how long farewell goes on: as long as a flood lasts,
	// there is always something to send.
	farewellMost = time.Second
)

// farewell sends all that the agent has to send, and waits until the link has
// it: what is only posted goes with the device.
func (m *manager) farewell() {
	for until := m.now().Add(farewellMost); m.now() < until; {
		m.settle()
		if m.gsi.sent() && m.controls.sent() {
			return
		}
		before := len(m.gsi.free)
		if m.receive(); len(m.gsi.free) > before {
			continue
		}
		m.left = m.tasks.NewBell()
		m.mu.Unlock()
		err := m.untilSent()
		m.lock()
		m.left = nil
		if err != nil && len(m.gsi.free) == before {
			return
		}
	}
}

// awaitPeers gives peers that were accepted last a moment to say that they
// know. So they learn of a connection that ends, and not of a rejection.
func (m *manager) awaitPeers() {
	for until := m.now().Add(farewellWait); m.agent.Parting() && m.now() < until; {
		m.settle()
		m.left = m.tasks.NewBell()
		m.mu.Unlock()
		err := m.untilSent()
		m.lock()
		m.left = nil
		if m.receive(); err != nil {
			return
		}
	}
}

// untilSent waits until a datagram may have been sent, or has come.
func (m *manager) untilSent() error {
	if m.arrived.Load() != 0 {
		return nil
	}
	ctx, cancel := m.tasks.WithTimeout(context.Background(), farewellWait)
	defer cancel()
	return m.left.Wait(ctx)
}

// close ends all that the manager has. It says so to the peers, if the device
// is still open.
func (m *manager) close() {
	managers.mu.Lock()
	if managers.of[m.dev] == m {
		delete(managers.of, m.dev)
	}
	managers.mu.Unlock()
	m.lock()
	if m.closed {
		m.unlock()
		return
	}
	m.closed = true
	listeners := m.listeners
	m.listeners = map[mad.ServiceID]sink{}
	for service := range listeners { // a request that comes now is rejected
		m.agent.Unlisten(service)
	}
	for _, id := range slices.Sorted(maps.Keys(m.ids)) {
		if c, ok := m.ids[id].(*Conn); ok {
			c.heard()
		}
		m.agent.Release(m.now(), id)
	}
	m.awaitPeers()
	m.agent.Leave()
	m.farewell()
	m.gone = true
	m.timer.Stop()
	ids := m.ids
	m.ids = map[agent.ID]sink{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		ids[id].over()
	}
	for _, service := range slices.Sorted(maps.Keys(listeners)) {
		listeners[service].over()
	}
	controls := m.controls.close()
	m.unlock()
	m.forget()
	for _, c := range controls {
		c.destroy()
	}
	m.gsi.close()
}

// errOver says why nothing can be done with a manager that is closed.
func (m *manager) errOver() error { return errOver(m.dev) }

func errOver(dev *verbs.Device) error {
	return fmt.Errorf("cm: device %v: %w", dev.Addr(), ErrClosed)
}
