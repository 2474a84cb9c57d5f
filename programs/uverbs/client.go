//go:build linux

package uverbs

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// Client is an open file of a device. Its methods may be called from any
// goroutine.
type Client struct {
	dev  *Device
	ctx  *hca.Context
	area *area

	errands
	doorbells *Doorbells

	mu     sync.Mutex // held by commands, and to close
	closed bool

	async atomic.Pointer[pipe] // nil before the program has asked for its context

	most     maxima
	domains  table[domain]
	regions  table[region]
	windows  table[window]
	handles  table[handle]
	channels table[pipe]
	cqs      table[ownedCQ]
	srqs     table[ownedSRQ]
	qps      table[ownedQP]
}

// newClient makes a client with a context, which is its own when it returns
// without an error.
func newClient(d *Device, ctx *hca.Context) (*Client, error) {
	rings := min(cmp.Or(d.Rings, defaultRings), maxRings)
	a, err := newArea(rings)
	if err != nil {
		return nil, err
	}
	m := maximaOf(rings)
	c := &Client{dev: d, ctx: ctx, area: a, doorbells: newDoorbells(),
		most:     m,
		domains:  table[domain]{most: m.pds},
		regions:  table[region]{most: m.mrs},
		windows:  table[window]{most: m.mws},
		handles:  table[handle]{most: m.ahs},
		channels: table[pipe]{most: maxChannels},
		cqs:      table[ownedCQ]{most: m.cqs},
		srqs:     table[ownedSRQ]{most: m.srqs},
		qps:      table[ownedQP]{most: m.qps},
	}
	c.errands.init(d.Dev)
	ctx.HandleEvents(c.event)
	return c, nil
}

// Memory returns the file that the program maps, with rings where replies say.
// It belongs to the client.
func (c *Client) Memory() int { return c.area.fd }

// Files returns the files that the client has for itself, besides Memory.
func (c *Client) Files() (list []int) {
	for _, p := range c.pipes() {
		list = append(list, p.files()...)
	}
	return list
}

// pipes returns all files of events.
func (c *Client) pipes() []*pipe {
	list := c.channels.all()
	if p := c.async.Load(); p != nil {
		list = append(list, p)
	}
	return list
}

// CloseEvents says that the program has closed a file of events, which has the
// inode: no command does.
func (c *Client) CloseEvents(inode uint64) {
	for _, p := range c.pipes() {
		if p.ino == inode {
			p.abandon()
		}
	}
}

// Close frees everything that was made through the client. Its peers get what
// verbs promise when a program ends.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.PostLeft()
	c.closed = true
	err := c.ctx.Close() // queue pairs first; and it ends events
	for _, q := range c.qps.all() {
		q.queues.Close()
	}
	for _, q := range c.cqs.all() {
		q.core.Close()
	}
	for _, q := range c.srqs.all() {
		q.core.Close()
	}
	c.errands.end()
	for _, p := range c.pipes() {
		p.close()
	}
	c.doorbells.release()
	return errors.Join(err, c.area.close())
}

// Events changes when an event was written.
func (c *Client) Events() uint64 { return c.sent.Load() }

// Post posts what the program has put into the ring of a queue pair. What was
// posted too early stays there until the queue pair can send, as in the kernel.
func (c *Client) Post(h uint32) abi.Errno {
	q := c.qps.get(h)
	if q == nil || !q.ready.Load() {
		return abi.EINVAL
	}
	q.queues.Serve()
	return 0
}

// Doorbells says which calls of Post the program may leave out, if it calls
// PostLeft instead when it polls or waits. Commands do so by themselves.
func (c *Client) Doorbells() *Doorbells { return c.doorbells }

// PostLeft is Post for all queue pairs whose doorbells were left out.
func (c *Client) PostLeft() {
	for h := range c.doorbells.take {
		c.Post(h)
	}
}

// event hands an asynchronous event of the context to the program.
func (c *Client) event(e hca.AsyncEvent) {
	switch {
	case !known(e.Kind):
	case e.QP == nil:
		if p := c.async.Load(); p != nil {
			c.send(p, record{element: portNumber, kind: uint32(e.Kind), of: new(tally)})
		}
		if e.Kind != ib.EventDeviceFatal {
			return
		}
		for _, p := range c.pipes() { // no event follows: none is to wait for one
			c.send(p, record{last: true})
		}
	default:
		if q, ok := e.QP.UserData().(*ownedQP); ok {
			q.tell(e.Kind)
		}
	}
}

// object is what a program has made that raises asynchronous events.
type object struct {
	client *Client
	handle uint32
	user   uint64 // the program's name of it
	raised tally  // asynchronous events
}

// tell hands an asynchronous event to the program. It may be called with any
// lock held but that of the errands.
func (o *object) tell(e ib.Event) {
	o.client.send(o.client.async.Load(), record{element: o.user, kind: uint32(e), of: &o.raised})
}

// reported returns how many asynchronous events of an object, which raises no
// more, the program has read. It gets no others.
func (o *object) reported() uint32 {
	o.client.errands.run()
	return o.client.async.Load().takeBack(o.user, &o.raised)
}

// errnoOf returns the error number for an error of hca or of the memory of a
// program.
func errnoOf(err error) abi.Errno {
	var errno abi.Errno
	var sys unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &sys):
		return abi.Errno(sys)
	case errors.Is(err, hca.ErrNoResources):
		return abi.ENOMEM
	case errors.Is(err, hca.ErrInUse), errors.Is(err, ib.ErrInUse):
		return abi.EBUSY
	case errors.Is(err, hca.ErrClosed):
		return abi.ENODEV
	}
	return abi.EINVAL
}
