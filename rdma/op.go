package rdma

import (
	"context"
	"errors"

	"github.com/gosoftroce/rocev2/verbs"
)

// Op is a request that Conn.Go has posted. Its memory belongs to the device
// until it is over, whatever becomes of those who wait for it.
type Op struct {
	c *Conn
	p pending
}

// Go posts any request and returns at once, so that many can be under way: they
// are carried out in order. It waits only while the send queue is full. The
// memory of the request is registered, see Register; Signaled does not matter.
//
// Messages go by Send, which knows the peer's credits: for a peer that is not
// foreign, requests that take one of its receives are refused.
func (c *Conn) Go(wr verbs.SendWR) *Op {
	op := &Op{c: c}
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if op.p.err = c.core.out.turn(context.Background(), wantSlot); op.p.err != nil {
		return op
	}
	switch wr.Opcode {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWriteImm:
		if !c.core.foreign {
			op.p.err = errTakesReceive
			return op
		}
	}
	wr.Signaled = true
	op.p.left = 1
	if err := c.core.out.post(&wr, slot{ref: &op.p}); err != nil {
		op.p.left, op.p.err = 0, err
	}
	return op
}

var errTakesReceive = errors.New("messages go by Send: the request would take a receive that the peer has not granted")

// Done returns a channel that is closed when the request is over.
func (op *Op) Done() <-chan struct{} {
	c := op.c
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if op.p.ch == nil {
		op.p.ch = make(chan struct{})
		if op.p.left == 0 {
			close(op.p.ch)
			return op.p.ch
		}
		c.core.out.watched++
		if !c.core.callers.Leads() && c.core.notice != ofAny {
			c.core.arm()
		}
	}
	return op.p.ch
}

// Wait waits until the request is over, as long as ctx allows, and returns its
// error. The error of ctx means that the request goes on.
func (op *Op) Wait(ctx context.Context) error {
	c := op.c
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if err := c.core.wait(ctx, wantDone, &op.p); err != nil && op.p.left > 0 {
		return c.failed("wait", err)
	}
	return c.failed("request", c.core.out.verdict(&op.p))
}

// Err returns the error of a request that is over, and nil before.
func (op *Op) Err() error {
	c := op.c
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	if op.p.left > 0 {
		return nil
	}
	return c.failed("request", c.core.out.verdict(&op.p))
}

// quiesce waits until operations on memory of the connection are over. As in
// settle, one that does not end ends the connection.
func (c *Conn) quiesce(ops []*Op) {
	c.core.mu.Lock()
	defer c.core.mu.Unlock()
	for _, op := range ops {
		if op != nil && op.p.left > 0 {
			c.core.out.settle(ended, &op.p)
		}
	}
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
