//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// mostCQE is how many slots a ring of completions has at most.
const mostCQE = 1 << 20

// ownedCQ is a completion queue.
type ownedCQ struct {
	object
	core  *CompQueue
	space *ringSpace
	users int // queue pairs that complete into it

	channel *pipe // or nil
	told    tally // completion events
}

// createCompChannel opens a file with completion events.
func createCompChannel(c *Client, r *abi.Request, _ *abi.CreateCompChannelReq) abi.Reply {
	c.dropChannels()
	var fd int
	h, err := c.channels.add(func(h uint32) (p *pipe, err error) {
		p, fd, err = newPipe(abi.CompEventLen)
		if err == nil {
			p.number = h
		}
		return p, err
	})
	if err != nil {
		return abi.Fail(abi.EMFILE)
	}
	if c.dev.Dev.Failed() {
		c.channels.get(h).end() // the event has not reached it
	}
	out := r.Answer(abi.CreateCompChannelResp{}, nil)
	out.Files = []abi.ReplyFile{{FD: fd, Offset: 0}}
	return out
}

// dropChannels frees the channels that the program has closed. No command says
// so.
func (c *Client) dropChannels() {
	used := map[*pipe]bool{}
	for _, q := range c.cqs.all() {
		used[q.channel] = true
	}
	for _, p := range c.channels.all() {
		if !used[p] && p.abandoned() {
			p.close()
			c.channels.release(p.number)
		}
	}
}

// channelAt returns the channel of a file descriptor of the program, or nil.
func (c *Client) channelAt(fd int) *pipe {
	ino, ok := inode(fd)
	for _, p := range c.channels.all() {
		if ok && p.ino == ino {
			return p
		}
	}
	return nil
}

// createCQ makes a completion queue (IBTA 11.2.7.1).
func createCQ(c *Client, r *abi.Request, req *abi.CreateCQReq) abi.Reply {
	q, errno := c.makeCQ(&req.CQInit)
	if errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(abi.CreateCQResp{CqHandle: q.handle, Cqe: q.space.entries()}, q.space.info())
}

// exCreateCQ makes a completion queue.
func exCreateCQ(c *Client, r *abi.Request, req *abi.ExCreateCQReq) abi.Reply {
	if req.CompMask != 0 || req.Reserved != 0 {
		return abi.Fail(abi.EINVAL)
	}
	if req.Flags != 0 {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	q, errno := c.makeCQ(&req.CQInit)
	if errno != 0 {
		return abi.Fail(errno)
	}
	out := abi.ExCreateCQResp{Base: abi.CreateCQResp{CqHandle: q.handle, Cqe: q.space.entries()}}
	out.ResponseLength = uint32(binary.Size(out))
	return r.Answer(out, q.space.info())
}

// makeCQ makes a completion queue.
func (c *Client) makeCQ(req *abi.CQInit) (*ownedCQ, abi.Errno) {
	cqe := req.Cqe
	if cqe == 0 || int64(cqe) > int64(longest.cqe) || int64(req.CompVector) >= int64(c.dev.Dev.CompletionVectors()) {
		return nil, abi.EINVAL
	}
	q := &ownedCQ{object: object{client: c, user: req.UserHandle}}
	if req.CompChannel >= 0 {
		if q.channel = c.channelAt(int(req.CompChannel)); q.channel == nil {
			return nil, abi.EBADF
		}
	}
	if int(cqe) > c.most.cqe {
		return nil, abi.ENOMEM
	}
	_, err := c.cqs.add(func(h uint32) (_ *ownedCQ, err error) {
		q.handle = h
		q.space, err = c.area.alloc(ring.ShapeFor(int(cqe), ring.CQElem))
		if err == nil {
			q.core, err = newCompQueue(q.space, q.teller(), func() { q.tell(ib.EventCQError) })
		}
		return q, err
	})
	return q, errnoOf(err)
}

// teller returns what tells the program that a queue has something.
func (q *ownedCQ) teller() func() {
	if q.channel == nil {
		return nil
	}
	return func() { q.client.send(q.channel, record{element: q.user, of: &q.told}) }
}

// resizeCQ changes how many completions a queue holds (IBTA 11.2.7.3).
func resizeCQ(c *Client, r *abi.Request, req *abi.ResizeCQReq) abi.Reply {
	q := c.cqs.get(req.CqHandle)
	if q == nil || req.Cqe == 0 || int64(req.Cqe) > int64(longest.cqe) {
		return abi.Fail(abi.EINVAL)
	}
	if int(req.Cqe) > c.most.cqe {
		return abi.Fail(abi.ENOMEM)
	}
	if errno := q.space.move(ring.ShapeFor(int(req.Cqe), ring.CQElem), q.core.Resize); errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(abi.ResizeCQResp{Cqe: q.space.entries()}, q.space.info())
}

// destroyCQ destroys a completion queue (IBTA 11.2.7.4).
func destroyCQ(c *Client, r *abi.Request, req *abi.DestroyCQReq) abi.Reply {
	q := c.cqs.get(req.CqHandle)
	switch {
	case q == nil:
		return abi.Fail(abi.ENOENT)
	case q.users > 0:
		return abi.Fail(abi.EBUSY)
	}
	q.core.Close()
	out := abi.DestroyCQResp{AsyncEventsReported: q.reported()} // it has written what was owed
	if q.channel != nil {
		out.CompEventsReported = q.channel.takeBack(q.user, &q.told)
	}
	q.space.release()
	c.cqs.release(q.handle)
	return r.Answer(out, nil)
}

// arm arms a queue, by a command of n bytes (IBTA 11.4.2.2).
func (c *Client) arm(h uint32, solicitedOnly bool, n int) abi.Reply {
	q := c.cqs.get(h)
	if q == nil {
		return abi.Fail(abi.EINVAL)
	}
	q.core.Arm(solicitedOnly)
	return abi.Reply{N: n}
}
