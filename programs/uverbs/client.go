//go:build linux

package uverbs

import (
	"cmp"
	"errors"
	"sync"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// Client is an open file of a device. Its methods may be called from any
// goroutine.
type Client struct {
	ctx       *hca.Context
	area      *area
	doorbells *Doorbells

	mu     sync.Mutex // held by commands, and to close
	closed bool

	queries    queries
	events     events
	protection protection
	handles    addressHandles
	cqs        compQueues
	srqs       sharedQueues
	qps        queuePairs
}

// newClient makes a client with a context, which is its own when it returns
// without an error.
func newClient(d *Device, ctx *hca.Context) (*Client, error) {
	rings := min(cmp.Or(d.Rings, defaultRings), maxRings)
	a, err := newArea(rings)
	if err != nil {
		return nil, err
	}
	m := maximaOf(rings).within(d.Dev.Limits())
	c := &Client{ctx: ctx, area: a, doorbells: newDoorbells(), queries: queries{d, m}}
	e, p := &c.events, &c.protection
	e.dev, e.channels.most = d.Dev, maxChannels
	e.deferred.init(d.Dev)
	p.ctx, p.domains.most, p.regions.most, p.windows.most = ctx, m.pds, m.mrs, m.mws
	c.handles = addressHandles{dev: d, domains: &p.domains, handles: table[handle]{most: m.ahs}}
	c.cqs = compQueues{dev: d, area: a, events: e, most: m.cqe, cqs: table[ownedCQ]{most: m.cqs}}
	c.srqs = sharedQueues{dev: d, area: a, events: e, domains: &p.domains, srqs: table[ownedSRQ]{most: m.srqs}}
	c.qps = queuePairs{dev: d, ctx: ctx, area: a, events: e, doorbells: c.doorbells, handles: &c.handles,
		domains: &p.domains, cqs: &c.cqs.cqs, srqs: &c.srqs.srqs, most: m.wr, qps: table[ownedQP]{most: m.qps}}
	c.cqs.fail = c.qps.failAll
	ctx.HandleEvents(e.happened)
	return c, nil
}

// Memory returns the file that the program maps, with rings where replies say.
// It belongs to the client.
func (c *Client) Memory() int { return c.area.fd }

// Files returns the files that the client has for itself, besides Memory.
func (c *Client) Files() (list []int) {
	for _, p := range c.events.pipes() {
		list = append(list, p.files()...)
	}
	return list
}

// CloseEvents says that the program has closed a file of events, which has the
// inode: no command does.
func (c *Client) CloseEvents(inode uint64) { c.events.closed(inode) }

// Close frees everything that was made through the client. Its peers get what
// verbs promise when a program ends.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.PostLeft()
	for _, q := range c.qps.qps.all() {
		q.queues.look()
	}
	c.closed = true
	err := c.ctx.Close() // queue pairs first; and it ends events
	for _, q := range c.qps.qps.all() {
		q.queues.Close()
	}
	for _, q := range c.cqs.cqs.all() {
		q.core.Close()
	}
	for _, q := range c.srqs.srqs.all() {
		q.core.Close()
	}
	c.events.deferred.end()
	for _, p := range c.events.pipes() {
		p.close()
	}
	c.doorbells.release()
	return errors.Join(err, c.area.close())
}

// Events changes when an event was written.
func (c *Client) Events() uint64 { return c.events.deferred.sent.Load() }

// Post posts what the program has put into the ring of a queue pair. What was
// posted too early stays there until the queue pair can send, as in the kernel.
func (c *Client) Post(h uint32) abi.Errno { return c.qps.post(h) }

// Doorbells says which calls of Post the program may leave out, if it calls
// PostLeft instead when it polls or waits. Commands do so by themselves.
func (c *Client) Doorbells() *Doorbells { return c.doorbells }

// PostLeft is Post for all queue pairs whose doorbells were left out.
func (c *Client) PostLeft() {
	for h := range c.doorbells.take {
		c.Post(h)
	}
}
