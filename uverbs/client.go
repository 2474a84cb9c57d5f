//go:build linux

package uverbs

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
)

// Client is an open file of a device: a program, or several that share it.
// Its methods may be called from any goroutine.
type Client struct {
	dev     *Device
	peer    Peer
	ctx     *hca.Context
	area    *area
	account *quota.Account
	bell    *bell
	posted  bool         // something, since serveBells has looked; it is its alone
	next    int          // the word of bells that has its turn; as posted
	pauses  atomic.Int64 // of serveBells
	room    *bellRoom    // where the bell is looked at; nil: by a goroutine
	here    inRoom
	bulk    Bulk
	withheld

	courier *courier
	stop    chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex // held by commands, and to close
	closed bool

	async atomic.Pointer[pipe] // nil before the program has asked for its context
	imports

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
func newClient(d *Device, p Peer, q Quota, ctx *hca.Context) (*Client, error) {
	account := quota.New("an open device file", q.Account, quota.Limits{quota.CQEntries: int64(q.CQEntries)})
	a, err := newArea(q.RingBytes, account)
	if err != nil {
		return nil, err
	}
	room := d.room()
	b, err := newBell(room == nil)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	m := maximaOf(q, account)
	c := &Client{dev: d, peer: p, account: account, ctx: ctx, area: a, bell: b, room: room, stop: make(chan struct{}),
		most:     m,
		domains:  table[domain]{most: m.pds, kind: quota.PDs, account: account},
		regions:  table[region]{most: m.mrs, kind: quota.MRs, account: account},
		windows:  table[window]{most: m.mws, kind: quota.MWs, account: account},
		handles:  table[handle]{most: m.ahs, kind: quota.AHs, account: account},
		channels: table[pipe]{most: limit(q.Channels, 1<<16), kind: quota.Channels, account: account},
		cqs:      table[ownedCQ]{most: m.cqs, kind: quota.CQs, account: account},
		srqs:     table[ownedSRQ]{most: m.srqs, kind: quota.SRQs, account: account},
		qps:      table[ownedQP]{most: m.qps, kind: quota.QPs, account: account},
	}
	if room == nil {
		c.courier = newCourier(b.ring)
		c.running.Go(c.serveBells)
	} else {
		c.courier = newCourier(d.Dev.WakeAside)
		if int(p.UID) == os.Geteuid() {
			// Who reads a pipe into memory that does not come
			// holds up who writes it.
			c.courier.soon = room.takesMail
		}
		if err := room.add(c); err != nil {
			return nil, errors.Join(err, b.file.Close(), a.close())
		}
	}
	c.running.Go(func() { c.courier.run(c.stop) })
	c.running.Go(c.events)
	return c, nil
}

// Memfd returns the memory that the client shares with the program: the
// doorbell area, and rings where replies say. It belongs to the client.
func (c *Client) Memfd() *os.File { return c.area.file }

// Bell returns the eventfd that the program writes to when the client sleeps.
// It belongs to the client.
func (c *Client) Bell() *os.File { return c.bell.file }

// Close frees everything that was made through the client. Its peers get what
// verbs promise when a program ends.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.stop)
	if c.room != nil {
		c.room.remove(c)
	} else {
		c.bell.ring()
	}
	errs := []error{c.ctx.Close()} // queue pairs first; and it ends events
	for _, q := range c.cqs.all() {
		q.core.Close()
	}
	for _, q := range c.srqs.all() {
		q.core.Close()
	}
	c.running.Wait()
	for _, p := range c.channels.all() {
		p.close()
	}
	for _, p := range c.homes() {
		p.close()
	}
	errs = append(errs, c.bell.file.Close(), c.area.close())
	c.account.Clear()
	return errors.Join(errs...)
}

// events hands the asynchronous events of the context to the program.
func (c *Client) events() {
	for {
		e, err := c.ctx.AsyncEvent(context.Background())
		if err != nil {
			return
		}
		switch {
		case !known(e.Kind):
		case e.QP == nil:
			c.tellAll(e.Kind)
		default:
			if q, ok := e.QP.UserData().(*ownedQP); ok {
				c.tell(q, e.Kind)
			}
		}
	}
}

// affiliated is what asynchronous events are of.
type affiliated interface {
	// element returns where the events of the object go, the program's name
	// of it, and the tally of its events.
	element() (*pipe, uint64, *tally)
}

// tell hands an asynchronous event to the program. It may be called with any
// lock held but that of the courier.
func (c *Client) tell(a affiliated, e ib.Event) {
	p, element, of := a.element()
	c.courier.post(p, record{element: element, kind: uint32(e), of: of})
}

// tellAll hands an event of the port to all programs.
func (c *Client) tellAll(e ib.Event) {
	for _, p := range c.homes() {
		c.courier.post(p, record{element: portNumber, kind: uint32(e), of: new(tally)})
	}
}

// reported returns how many asynchronous events of an object, which raises no
// more, the program has read. It gets no others.
func (c *Client) reported(a affiliated) uint32 {
	c.courier.flush()
	p, element, of := a.element()
	return p.takeBack(element, of)
}

// free closes memory that was a region.
func free(m any) error {
	if closer, ok := m.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// errnoOf returns the error number for an error of hca or of the memory of a
// program.
func errnoOf(err error) abi.Errno {
	var errno abi.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, hca.ErrNoResources):
		return abi.ENOMEM
	case errors.Is(err, hca.ErrInUse), errors.Is(err, ib.ErrInUse):
		return abi.EBUSY
	case errors.Is(err, hca.ErrClosed):
		return abi.ENODEV
	}
	return abi.EINVAL
}
