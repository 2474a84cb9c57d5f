package hca

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// shared is what the shards of a device share.
type shared struct {
	base      time.Time // time 0 of the engines, and of Now
	tasks     task.Runner
	driver    Driver // has the time instead; nil: there is none
	random    func() uint32
	spin      int // how many times a waiting program polls before it sleeps
	events    *eventHub
	pager     *pager
	moderator moderator
	handlers  handlers
	domains   domains
	yield     yielder
	wakers    linkWakers
	failed    atomic.Bool   // EventDeviceFatal was raised
	broken    chan struct{} // closed then: no goroutine waits for ever
	parts     []*locked     // of the shards

	// Shard i has the queue pairs whose number is slot+i modulo slots.
	slot, slots int

	// groupRoutes says which shards have queue pairs in which multicast
	// groups. It is replaced, never changed; nil with one shard.
	groupRoutes atomic.Pointer[map[netip.Addr][]*forwarded]
}

func (s *shared) now() clock.Time {
	if s.driver != nil {
		return s.driver.Now()
	}
	return clock.Time(time.Since(s.base))
}

// Now returns the time of the device's clock, in nanoseconds since it was
// opened; never 0.
func (s *shared) Now() uint64 { return uint64(s.now()) + 1 }

// Tasks returns what starts goroutines beside the device's programs, and has
// their time: with a Driver, the driver.
func (s *shared) Tasks() task.Runner { return s.tasks }

// tasksOn returns what a device on these links has for that.
func tasksOn(links []transport.Link) task.Runner {
	if driver := driverOf(links); driver != nil {
		return task.By(driver)
	}
	if links[0].Capabilities().Virtual {
		return task.InBubble()
	}
	return task.Runner{}
}

// partOf returns the index of the shard of a queue pair with a number, -1 if
// that is of another device with the same address. The management queue pair is
// of each of them.
func (s *shared) partOf(n rocev2.QPN) int {
	i := int(n)&(s.slots-1) - s.slot
	switch {
	case i >= 0 && i < len(s.parts):
		return i
	case n == engine.GSIQPN:
		return 0
	}
	return -1
}

// portLost is called when a link is closed. If the device is not, something
// else has closed it: then the device has failed (IBTA 11.6.3.1). Its queue
// pairs go to the error state, so that what programs have posted completes.
func (s *shared) portLost(of *locked) {
	of.lock()
	closed := of.closed
	of.unlock()
	if closed || s.failed.Swap(true) {
		return
	}
	for _, t := range s.parts {
		t.lock()
		if !t.closed {
			t.eng.Fail()
		}
		t.unlock()
	}
	s.events.broadcast(ib.EventDeviceFatal)
	s.handlers.run() // no lock may be given up after this
	close(s.broken)
}

// locked is the engine of a shard, the lock that guards it, and what is done
// when that is given up.
type locked struct {
	*shared
	link      transport.Link
	driven    driven // nil without a driver
	side      side
	waker     linkWaker
	alarm     alarm
	forwarded forwarded // by other shards

	mu     sync.Mutex // guards what follows, and what belongs to the shard; see lock and unlock
	eng    *engine.Engine
	closed bool

	done chan struct{} // closed with the shard
}

// finalWait is how long a goroutine waits for a link that is full. After that
// others do not wait, until the link has taken a batch.
const finalWait = time.Second

// driven is what a driver does in place of the shard's goroutines.
type driven interface {
	// release gives up the lock.
	release()
	// poll waits for a program that has polled and found nothing.
	poll() bool
	// giveTurn waits until a queue pair has sent what it has.
	giveTurn(q *engine.QP)
}

// lock locks the shard.
func (s *locked) lock() { s.mu.Lock() }

// unlock unlocks the shard, does what may be a system call, and calls the
// handlers of completion queues.
func (s *locked) unlock() {
	s.release()
	if s.handlers.any.Load() {
		s.handlers.run()
	}
}

// release unlocks the shard, and does what may be a system call: it arms the
// timer and wakes a program that sleeps in the link, and a receiver that must
// look after answers.
func (s *locked) release() {
	if s.driven != nil {
		s.driven.release()
		return
	}
	at, timed := s.eng.Deadline()
	timed = timed && !s.closed
	s.mu.Unlock()
	if timed {
		s.alarm.set(at, s.now)
	}
	if s.wakers.any.Load() {
		s.wakers.run()
	}
	if s.side.has(wake.Abandoned) {
		s.side.on(wake.Unlocked)
	}
	if s.moderator.earlier.Load() {
		s.moderator.setAlarm()
	}
}

// waitLink sleeps in the link until that may have something. An error says that
// it is closed.
func (s *locked) waitLink() error {
	err := s.link.Wait()
	if err != nil {
		s.portLost(s)
	}
	return err
}

// linkWaker wakes a program that sleeps in a link.
type linkWaker struct {
	all    *linkWakers
	link   transport.Link
	wanted atomic.Bool
}

// later has it woken when the lock is given up that the caller holds.
func (w *linkWaker) later() {
	w.wanted.Store(true)
	w.all.any.Store(true)
}

// linkWakers are those of a device: what completes in one shard may wake a
// program that sleeps in the link of another.
type linkWakers struct {
	any  atomic.Bool // one of them is wanted
	list []*linkWaker
}

// run wakes the programs that are to be woken.
func (w *linkWakers) run() {
	if !w.any.Swap(false) {
		return
	}
	for _, k := range w.list {
		if k.wanted.Swap(false) {
			k.link.Wake()
		}
	}
}

// forward gives packets to the shards that they belong to. It queues them
// there; the goroutine of that shard handles them and sends the answers. It is
// the only way from one shard to another. The caller may hold a shard's lock.
func (s *locked) forward(packets []transport.RxPacket) {
	for i := range packets {
		if to := s.partOf(destQPN(packets[i].Data)); to < 0 {
			transport.HandOver(s.link, &packets[i])
		} else {
			s.parts[to].forwarded.put(&packets[i])
		}
	}
}

// destQPN reads the destination from a packet that has parsed.
func destQPN(b []byte) rocev2.QPN {
	return rocev2.QPN(binary.BigEndian.Uint32(b[4:])) & rocev2.QPNMask
}

// distribute gives packets for groups, which the link of s has received, to the
// other shards that have queue pairs in them, as forward does. The caller holds
// the lock of s.
func (s *locked) distribute(packets []transport.RxPacket) {
	routes := s.groupRoutes.Load()
	for i := range packets {
		var members []*forwarded
		if routes != nil {
			members = (*routes)[packets[i].Dst]
		}
		if len(members) == 0 {
			s.eng.Counters().Device[engine.DropGroup]++
		}
		for _, f := range members {
			if f != &s.forwarded {
				f.put(&packets[i])
			}
		}
	}
}

// bulkPolls is how often it is worth to look for packets of a bulk transfer, 0
// if none is under way.
func bulkPolls(parts []*locked) (most int) {
	for _, s := range parts {
		if b := wake.Bulk(s.side.bulk.Load()); b.UnderWay() {
			most = max(most, b.Polls())
		}
	}
	return most
}
