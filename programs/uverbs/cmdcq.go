//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/hca/strict"
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

// compQueues is the completion queues of a client.
type compQueues struct {
	dev    *Device
	area   *area
	events *events
	most   int              // completions that one holds
	fail   func(*CompQueue) // has its queue pairs end
	cqs    table[ownedCQ]
}

// createCQ makes a completion queue (IBTA 11.2.7.1).
func (c *compQueues) createCQ(r *abi.Request, req *abi.CreateCQReq) abi.Reply {
	q, errno := c.make(&req.CQInit)
	if errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(abi.CreateCQResp{CqHandle: q.handle, Cqe: q.space.entries()}, q.space.info())
}

// exCreateCQ makes a completion queue.
func (c *compQueues) exCreateCQ(r *abi.Request, req *abi.ExCreateCQReq) abi.Reply {
	if req.CompMask != 0 || req.Reserved != 0 {
		return abi.Fail(abi.EINVAL)
	}
	if req.Flags != 0 {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	q, errno := c.make(&req.CQInit)
	if errno != 0 {
		return abi.Fail(errno)
	}
	out := abi.ExCreateCQResp{Base: abi.CreateCQResp{CqHandle: q.handle, Cqe: q.space.entries()}}
	out.ResponseLength = uint32(binary.Size(out))
	return r.Answer(out, q.space.info())
}

// make makes a completion queue.
func (c *compQueues) make(req *abi.CQInit) (*ownedCQ, abi.Errno) {
	cqe := req.Cqe
	if cqe == 0 || int64(cqe) > int64(c.dev.limits().CQE) || int64(req.CompVector) >= int64(c.dev.Dev.CompletionVectors()) {
		return nil, abi.EINVAL
	}
	q := &ownedCQ{object: object{events: c.events, user: req.UserHandle}}
	if req.CompChannel >= 0 {
		if q.channel = c.events.channelAt(int(req.CompChannel)); q.channel == nil {
			return nil, abi.EBADF
		}
	}
	if int(cqe) > c.most {
		return nil, abi.ENOMEM
	}
	_, err := c.cqs.add(func(h uint32) (_ *ownedCQ, err error) {
		q.handle = h
		q.space, err = c.area.alloc(ring.ShapeFor(int(cqe), ring.CQElem))
		if err == nil {
			q.core, err = newCompQueue(q.space, q.teller(), func() { q.tell(ib.EventCQError) })
			q.core.checks, q.core.fail = c.dev.Dev.Strict(), func() { c.fail(q.core) }
			q.core.holds = q.core.checks.On(strict.Unsignaled)
		}
		return q, err
	})
	if err == nil && q.channel != nil {
		q.channel.users++
	}
	return q, errnoOf(err)
}

// teller returns what tells the program that a queue has something.
func (q *ownedCQ) teller() func() {
	if q.channel == nil {
		return nil
	}
	return func() { q.events.deferred.send(q.channel, record{element: q.user, of: &q.told}) }
}

// resizeCQ changes how many completions a queue holds (IBTA 11.2.7.3).
func (c *compQueues) resizeCQ(r *abi.Request, req *abi.ResizeCQReq) abi.Reply {
	q := c.cqs.get(req.CqHandle)
	if q == nil || req.Cqe == 0 || int64(req.Cqe) > int64(c.dev.limits().CQE) {
		return abi.Fail(abi.EINVAL)
	}
	if int(req.Cqe) > c.most {
		return abi.Fail(abi.ENOMEM)
	}
	if errno := q.space.move(ring.ShapeFor(int(req.Cqe), ring.CQElem), q.core.Resize); errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(abi.ResizeCQResp{Cqe: q.space.entries()}, q.space.info())
}

// destroyCQ destroys a completion queue (IBTA 11.2.7.4).
func (c *compQueues) destroyCQ(r *abi.Request, req *abi.DestroyCQReq) abi.Reply {
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
		q.channel.users--
	}
	q.space.release()
	c.cqs.release(q.handle)
	return r.Answer(out, nil)
}

// arm arms a queue, by a command of n bytes (IBTA 11.4.2.2).
func (c *compQueues) arm(h uint32, solicitedOnly bool, n int) abi.Reply {
	q := c.cqs.get(h)
	if q == nil {
		return abi.Fail(abi.EINVAL)
	}
	q.core.Arm(solicitedOnly)
	return abi.Reply{N: n}
}
