package rdma

import (
	"context"

	"github.com/gosoftroce/rocev2/verbs"
)

// dirAsked is a request to the directory that is not answered yet. It keeps its
// buffer, and so its credit, until it is: a peer has at most as many requests
// here as messages.
type dirAsked struct {
	buf *buffer
	req dirRequest
}

// asked takes a request of the peer to the directory of this side.
func (c *core) asked(b *buffer, n int) error {
	req, err := parseDirRequest(b.part(0, n))
	if err != nil {
		return err
	}
	c.in.requests = append(c.in.requests, dirAsked{b, req})
	return nil
}

// answer answers the first request. There are room and credit for it.
func (c *core) answer() {
	asked := c.in.requests[0]
	c.in.requests = c.in.requests[1:]
	if len(c.in.requests) == 0 {
		c.in.requests = nil
	}
	reply := dirReply{op: asked.req.op, tag: asked.req.tag, status: dirUnknown}
	if d := c.hub.exports; d != nil {
		d.answer(asker{c.client, c.secured.names()}, asked.req, &reply)
	}
	b, err := c.hub.take()
	if err != nil {
		c.quit(err)
		return
	}
	c.out.sendBuffer(kindReply, b, copy(b.bytes(), reply.encode(min(dirReplyMax, c.maxSend, c.hub.size))))
	c.in.giveBack(asked.buf)
}

// dirCalls are the requests of this side that the peer has not answered.
type dirCalls struct {
	tag  uint16
	open map[uint16]*dirCall
}

type dirCall struct {
	pending
	op    dirOp
	reply dirReply
}

// answered takes an answer of the peer's directory.
func (c *core) answered(b *buffer, n int) error {
	reply, err := parseDirReply(b.part(0, n))
	if err != nil {
		return err
	}
	if c.calls == nil {
		return protocolError("an answer that was not asked for")
	}
	call := c.calls.open[reply.tag]
	if call != nil && call.op != reply.op {
		return protocolError("an answer of the directory to another question")
	}
	delete(c.calls.open, reply.tag)
	c.in.giveBack(b)
	if call != nil { // else it was given up
		call.reply = reply
		c.resolve(&call.pending, nil)
	}
	return nil
}

// maxCalls bounds the requests that were given up and may still be answered.
const maxCalls = 1 << 12

// ask asks the peer's directory.
func (c *core) ask(ctx context.Context, op dirOp, name string) (dirReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.foreign {
		return dirReply{}, ErrForeign
	}
	if c.calls == nil {
		c.calls = &dirCalls{open: map[uint16]*dirCall{}}
	}
	if err := c.out.turn(ctx, wantRoom); err != nil {
		return dirReply{}, err
	}
	if len(c.calls.open) >= maxCalls {
		return dirReply{}, verbs.ErrNoResources
	}
	b, err := c.hub.take()
	if err != nil {
		return dirReply{}, err
	}
	call := &dirCall{op: op}
	call.left = 1
	for c.calls.tag++; c.calls.open[c.calls.tag] != nil; {
		c.calls.tag++
	}
	req := dirRequest{op, c.calls.tag, name}
	c.calls.open[req.tag] = call
	if err := c.out.sendBuffer(kindRequest, b, copy(b.bytes(), req.encode())); err != nil {
		return dirReply{}, err
	}
	for call.left > 0 {
		if c.err != nil {
			return dirReply{}, c.err
		}
		if err := c.wait(ctx, wantReply, &call.pending); err != nil && call.left > 0 {
			return dirReply{}, err
		}
	}
	return call.reply, nil
}
