//go:build linux

package uverbs

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
	"github.com/gosoftroce/rocev2/uverbs/ring"
)

// mostCQE is how many slots a ring of completions has at most.
const mostCQE = 1 << 20

// ownedCQ is a completion queue.
type ownedCQ struct {
	client  *Client
	handle  uint32
	user    uint64 // the program's name of it
	core    *CompQueue
	space   *ringSpace
	entries int
	users   int // queue pairs that complete into it

	channel *pipe // or nil
	told    tally // completion events
	raised  tally // asynchronous events
	home    *pipe // where they go
}

// element implements affiliated.
func (q *ownedCQ) element() (*pipe, uint64, *tally) { return q.home, q.user, &q.raised }

// Notify implements Notifier.
func (q *ownedCQ) Notify(cookie uint64) bool {
	if room := q.client.room; room != nil {
		room.notified.Store(true)
	}
	q.client.courier.post(q.channel, record{element: cookie, of: &q.told})
	return true
}

// createCompChannel opens a file with completion events.
func createCompChannel(c *Client, r *call) abi.Reply {
	return decode(r, func(*abi.CreateCompChannelReq) abi.Reply {
		h, ok := c.channels.reserve()
		if !ok {
			c.dropChannels()
			if h, ok = c.channels.reserve(); !ok {
				return abi.Fail(abi.EMFILE)
			}
		}
		p, file, err := newPipe(abi.CompEventLen)
		if err != nil {
			c.channels.release(h)
			return abi.Fail(abi.EMFILE)
		}
		c.channels.set(h, p)
		out := r.answer(abi.CreateCompChannelResp{Fd: h}, nil)
		out.Files = []abi.ReplyFile{{File: file, Offset: 0}}
		return out
	})
}

// ForgetChannel frees a completion channel that the program has closed: for
// that there is no command. h is what the reply had in the place of the file's
// number, and what CreateCQ names.
func (c *Client) ForgetChannel(h uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.channels.get(h)
	if p == nil || c.closed {
		return
	}
	for _, q := range c.cqs.all() {
		if q.channel == p {
			return
		}
	}
	p.close()
	c.channels.release(h)
}

// dropChannels frees the channels that the program has closed. No command says
// so.
func (c *Client) dropChannels() {
	used := map[*pipe]bool{}
	for _, q := range c.cqs.all() {
		used[q.channel] = true
	}
	for h := range uint32(c.channels.most) {
		p := c.channels.get(h)
		if p != nil && !used[p] && p.abandoned() {
			p.close()
			c.channels.release(h)
		}
	}
}

// createCQ makes a completion queue (IBTA 11.2.7.1).
func createCQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.CreateCQReq) abi.Reply {
		q, errno := c.makeCQ(req.UserHandle, req.Cqe, req.CompVector, req.CompChannel)
		if errno != 0 {
			return abi.Fail(errno)
		}
		return r.answer(abi.CreateCQResp{CqHandle: q.handle, Cqe: uint32(q.entries)}, q.space.info())
	})
}

// exCreateCQ makes a completion queue.
func exCreateCQ(c *Client, r *call) abi.Reply {
	return decodeExtended(r, 28, func(req *abi.ExCreateCQReq) abi.Reply {
		if req.CompMask != 0 || req.Reserved != 0 {
			return abi.Fail(abi.EINVAL)
		}
		if req.Flags != 0 {
			return abi.Fail(abi.EOPNOTSUPP)
		}
		q, errno := c.makeCQ(req.UserHandle, req.Cqe, req.CompVector, req.CompChannel)
		if errno != 0 {
			return abi.Fail(errno)
		}
		out := abi.ExCreateCQResp{Base: abi.CreateCQResp{CqHandle: q.handle, Cqe: uint32(q.entries)}}
		out.ResponseLength = uint32(binary.Size(out))
		return r.answer(out, q.space.info())
	})
}

// makeCQ makes a completion queue.
func (c *Client) makeCQ(user uint64, cqe, vector uint32, channel int32) (*ownedCQ, abi.Errno) {
	if cqe == 0 || int64(cqe) > int64(longest.cqe) || int64(vector) >= int64(c.dev.Dev.CompletionVectors()) {
		return nil, abi.EINVAL
	}
	q := &ownedCQ{client: c, home: c.home, user: user}
	if channel >= 0 {
		if q.channel = c.channels.get(uint32(channel)); q.channel == nil {
			return nil, abi.EBADF
		}
	}
	shape := ring.ShapeFor(int(cqe), ring.CQElem)
	var ok bool
	if q.handle, ok = c.cqs.reserve(); !ok {
		return nil, abi.ENOMEM
	}
	if errno := q.init(shape); errno != 0 {
		c.cqs.release(q.handle)
		return nil, errno
	}
	q.entries = shape.Cap()
	c.cqs.set(q.handle, q)
	return q, 0
}

// init makes the queue itself.
func (q *ownedCQ) init(shape ring.Shape) abi.Errno {
	c := q.client
	if c.account.Take(quota.CQEntries, int64(shape.Cap())) != nil {
		return abi.ENOMEM
	}
	space, err := c.area.alloc(shape.Size())
	if err != nil {
		c.account.Give(quota.CQEntries, int64(shape.Cap()))
		return errnoOf(err)
	}
	arm := &c.area.arm[q.handle]
	arm.Store(0)
	config := CompQueueConfig{Memory: space.bytes(), Shape: shape, Arm: word(arm), Cookie: q.user,
		Added: c.told, Overflow: func() { c.tell(q, ib.EventCQError) }}
	if q.channel != nil {
		config.Notifier = q
	}
	if q.core, err = NewCompQueue(config); err != nil {
		space.release()
		c.account.Give(quota.CQEntries, int64(shape.Cap()))
		return errnoOf(err)
	}
	q.space = space
	return 0
}

// resizeCQ changes how many completions a queue holds (IBTA 11.2.7.3).
func resizeCQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.ResizeCQReq) abi.Reply {
		q := c.cqs.get(req.CqHandle)
		if q == nil || req.Cqe == 0 || int64(req.Cqe) > int64(longest.cqe) {
			return abi.Fail(abi.EINVAL)
		}
		shape := ring.ShapeFor(int(req.Cqe), ring.CQElem)
		if errno := q.resize(shape); errno != 0 {
			return abi.Fail(errno)
		}
		return r.answer(abi.ResizeCQResp{Cqe: uint32(q.entries)}, q.space.info())
	})
}

// resize moves a queue to a ring of another size.
func (q *ownedCQ) resize(shape ring.Shape) abi.Errno {
	c := q.client
	more := int64(shape.Cap() - q.entries)
	if more > 0 && c.account.Take(quota.CQEntries, more) != nil {
		return abi.ENOMEM
	}
	space, err := c.area.alloc(shape.Size())
	if err == nil {
		c.catchUp(q)
		if q.core.Resize(space.bytes(), shape) != nil {
			space.release()
			err = abi.EINVAL
		}
	}
	if err != nil {
		c.account.Give(quota.CQEntries, max(more, 0))
		return errnoOf(err)
	}
	c.account.Give(quota.CQEntries, max(-more, 0))
	q.space.release()
	q.space, q.entries = space, shape.Cap()
	return 0
}

// catchUp posts what the program has posted before to queue pairs that complete
// into q: some completes at once, and then it is there.
func (c *Client) catchUp(q *ownedCQ) {
	for _, qp := range c.qps.all() {
		if qp.send != q {
			continue
		}
		for left := int(qp.cap.MaxSendWr); left >= 0 && qp.serve(); {
			left -= turnOf
		}
	}
}

// destroyCQ destroys a completion queue (IBTA 11.2.7.4).
func destroyCQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.DestroyCQReq) abi.Reply {
		q := c.cqs.get(req.CqHandle)
		switch {
		case q == nil:
			return abi.Fail(abi.ENOENT)
		case q.users > 0:
			return abi.Fail(abi.EBUSY)
		}
		q.core.Close()
		out := abi.DestroyCQResp{AsyncEventsReported: c.reported(q)}
		if q.channel != nil {
			out.CompEventsReported = q.channel.takeBack(q.user, &q.told)
		}
		q.space.release()
		c.account.Give(quota.CQEntries, int64(q.entries))
		c.cqs.release(q.handle)
		return r.answer(out, nil)
	})
}

// reqNotifyCQ arms a queue (IBTA 11.4.2.2), for programs that do not do so
// themselves. To ask for any completion overrides to ask for solicited ones.
func reqNotifyCQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.ReqNotifyCQReq) abi.Reply {
		q := c.cqs.get(req.CqHandle)
		if q == nil {
			return abi.Fail(abi.EINVAL)
		}
		arm := &c.area.arm[q.handle]
		if req.SolicitedOnly == 0 {
			arm.Store(armedSolicited + 1)
		} else {
			arm.CompareAndSwap(notArmed, armedSolicited)
		}
		return done()
	})
}

// word returns a word as package sync/atomic's functions take it.
func word(w *atomic.Uint32) *uint32 { return (*uint32)(unsafe.Pointer(w)) }
