package hca

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// shared is what the shards of a device share.
type shared struct {
	base      time.Time // time 0 of the engines, and of Now
	driver    Driver    // has the time instead; nil: there is none
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
func (s *shared) Tasks() task.Runner {
	if s.driver == nil {
		return task.Runner{}
	}
	return task.By(s.driver)
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
	close(s.broken)
}
