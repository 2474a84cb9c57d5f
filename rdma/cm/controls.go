package cm

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

const (
	// requestWait is how long the side that has accepted a control
	// connection waits for a request over it.
	requestWait = secure.Time
	// controlBye is how long the other side waits until its end is
	// acknowledged.
	controlBye = 2 * time.Second
)

// controls are the control connections of a manager that carry MADs. The lock
// of the manager guards them. Methods are called with it, where they do not say
// otherwise.
type controls struct {
	m       *manager
	of      map[uint32]*control
	last    uint32
	parting []*control // their connection has ended

	mu   sync.Mutex // guards rung
	rung []*control // something has completed
}

// enter has c, which is secured, carry MADs from now on. The manager is not
// locked.
func (k *controls) enter(c *control) error {
	k.m.lock()
	defer k.m.unlock()
	if k.m.closed {
		return k.m.errOver()
	}
	if k.of == nil {
		k.of = map[uint32]*control{}
	}
	for k.last++; k.last == 0 || k.of[k.last] != nil; {
		k.last++
	}
	c.number, c.carries = k.last, true
	k.of[c.number] = c
	c.ctx = nil
	if c.from != nil {
		c.awaitRequest()
	}
	c.ring() // what has come meanwhile
	return nil
}

// ring has the manager look at c, when its lock is given up. The lock may be
// held.
func (c *control) ring() {
	c.mu.Lock()
	rung := c.rung
	c.rung = true
	c.mu.Unlock()
	if rung {
		return
	}
	k := &c.m.controls
	k.mu.Lock()
	k.rung = append(k.rung, c)
	k.mu.Unlock()
	c.m.arrived.Add(1)
}

// receive takes what has come over control connections.
func (k *controls) receive() {
	k.mu.Lock()
	rung := k.rung
	k.rung = nil
	k.mu.Unlock()
	for _, c := range rung {
		c.mu.Lock()
		c.rung = false
		c.mu.Unlock()
		if c.carries && !c.over {
			c.look()
		}
	}
}

// look takes what has come over c. The manager is locked.
func (c *control) look() {
	c.mu.Lock()
	in := c.in
	c.in = nil
	c.mu.Unlock()
	for _, a := range in {
		b := c.slot(a.slot)[a.begin:a.end]
		if len(b) == 0 {
			c.end()
			return
		}
		if !isConnection(b) {
			c.fail(errNoMAD)
			break
		}
		c.m.agent.Receive(c.m.now(), c.path(), b)
		if err := c.receive(a.slot); err != nil {
			c.fail(err)
			break
		}
	}
	if c.hasFailed() || c.leaving && c.sent() {
		c.end()
	}
}

// send sends a MAD over a control connection. What finds no room is lost, as in
// the network: the agent sends it again.
func (k *controls) send(number uint32, b []byte) {
	c := k.of[number]
	if c == nil || c.leaving {
		return
	}
	slot, _ := c.take()
	if slot == 0 {
		return
	}
	copy(c.slot(slot), b[:mad.Len])
	if err := c.post(slot, mad.Len); err != nil {
		c.fail(err)
		c.ring()
	}
}

// idle is told by the agent that a control connection has no connection any
// more. What there is to be sent over it is sent first.
func (k *controls) idle(number uint32) {
	if c := k.of[number]; c != nil {
		k.parting = append(k.parting, c)
	}
}

// part does what follows from that, and reports whether there was anything to
// do.
func (k *controls) part() bool {
	some := len(k.parting) > 0
	for len(k.parting) > 0 {
		c := k.parting[0]
		k.parting = k.parting[1:]
		switch {
		case c.over || c.leaving || k.m.agent.Busy(c.path()):
		case c.from != nil:
			c.awaitRequest()
		case !c.held:
			c.leave()
		}
	}
	return some
}

// awaitRequest has c end if no request comes over it. The manager is locked.
func (c *control) awaitRequest() {
	m := c.m
	if c.from != nil {
		c.from.wait(c)
	}
	c.after(requestWait, func() {
		if !m.agent.Busy(c.path()) {
			c.end()
		}
	})
}

// after has f called after a time, with the manager locked, if c is there then.
// It takes the place of an earlier one.
func (c *control) after(d time.Duration, f func()) {
	if c.wait != nil {
		c.wait.Stop()
	}
	c.wait = c.m.tasks.AfterFunc(d, func() {
		c.m.lock()
		defer c.m.unlock()
		if !c.over {
			f()
		}
	})
}

// leave ends c, which this side has dialled. The manager is locked.
func (c *control) leave() {
	slot, _ := c.take()
	if slot == 0 || c.post(slot, 0) != nil {
		c.end()
		return
	}
	c.leaving = true
	c.after(controlBye, c.end)
}

// letGo says that the dial that has used c has ended without a connection.
func (c *control) letGo() {
	c.m.lock()
	defer c.m.unlock()
	c.held = false
	c.m.controls.parting = append(c.m.controls.parting, c)
}

// end ends c, and the connection that it is for. The manager is locked.
func (c *control) end() {
	m := c.m
	if c.over {
		return
	}
	c.over = true
	if c.wait != nil {
		c.wait.Stop()
	}
	if c.from != nil {
		c.from.leave(c)
	}
	if !m.gone {
		m.agent.Cut(c.path())
	}
	delete(m.controls.of, c.number)
	m.tasks.Go(func() {
		c.conn.Close()
		c.destroy()
	})
}

// sent reports whether the peers of all control connections have what was sent
// to them.
func (k *controls) sent() bool {
	for _, c := range k.of {
		if !c.sent() {
			return false
		}
	}
	return true
}

// close returns the control connections, which are to be destroyed.
func (k *controls) close() (all []*control) {
	for _, n := range slices.Sorted(maps.Keys(k.of)) {
		c := k.of[n]
		c.over = true
		if c.wait != nil {
			c.wait.Stop()
		}
		all = append(all, c)
	}
	k.of = nil
	return all
}
