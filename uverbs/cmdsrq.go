//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/ring"
)

// ownedSRQ is a shared receive queue.
type ownedSRQ struct {
	client *Client
	handle uint32
	user   uint64
	pd     *domain
	core   *SharedRecvQueue
	space  *ringSpace
	sge    int
	users  int   // queue pairs that take from it
	raised tally // asynchronous events
	home   *pipe // where they go
}

// element implements affiliated.
func (q *ownedSRQ) element() (*pipe, uint64, *tally) { return q.home, q.user, &q.raised }

// createSRQ makes a shared receive queue (IBTA 11.2.3.1).
func createSRQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.CreateSRQReq) abi.Reply { return c.makeSRQ(r, req) })
}

// createXSRQ makes one, of the kinds that there are: none is of XRC, as with
// Soft-RoCE.
func createXSRQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.CreateXSRQReq) abi.Reply {
		if req.SrqType != abi.SRQBasic {
			return abi.Fail(abi.EOPNOTSUPP)
		}
		return c.makeSRQ(r, &abi.CreateSRQReq{UserHandle: req.UserHandle, PdHandle: req.PdHandle,
			MaxWr: req.MaxWr, MaxSge: req.MaxSge, SrqLimit: req.SrqLimit})
	})
}

func (c *Client) makeSRQ(r *call, req *abi.CreateSRQReq) abi.Reply {
	pd := c.domains.get(req.PdHandle)
	if pd == nil || req.MaxWr == 0 || int64(req.MaxWr) > int64(longest.srqWR) || req.MaxSge > ib.MaxSGE || req.SrqLimit > req.MaxWr {
		return abi.Fail(abi.EINVAL)
	}
	h, ok := c.srqs.reserve()
	if !ok {
		return abi.Fail(abi.ENOMEM)
	}
	q := &ownedSRQ{client: c, home: c.home, handle: h, user: req.UserHandle, pd: pd, sge: max(int(req.MaxSge), 1)}
	shape := ring.ShapeFor(int(req.MaxWr), ring.RecvElem(q.sge))
	if errno := q.init(shape); errno != 0 {
		c.srqs.release(h)
		return abi.Fail(errno)
	}
	q.core.SetLimit(int(req.SrqLimit))
	pd.users++
	c.srqs.set(h, q)
	return r.answer(abi.CreateSRQResp{SrqHandle: h, MaxWr: uint32(shape.Cap()), MaxSge: uint32(q.sge), Srqn: h},
		abi.CreateSRQDriverResp{Mi: q.space.info(), SrqNum: h})
}

// init makes the queue itself.
func (q *ownedSRQ) init(shape ring.Shape) abi.Errno {
	c := q.client
	space, err := c.area.alloc(shape.Size())
	if err != nil {
		return errnoOf(err)
	}
	q.core, err = NewSharedRecvQueue(SharedRecvQueueConfig{Memory: space.bytes(), Shape: shape, MaxSGE: q.sge, PD: q.pd.core.Core(),
		Limit:  func() { c.tell(q, ib.EventSRQLimit) },
		Failed: func() { c.tell(q, ib.EventSRQError) }})
	if err != nil {
		space.release()
		return errnoOf(err)
	}
	q.space = space
	return 0
}

// modifySRQ resizes a queue, or arms its limit (IBTA 11.2.3.3). The kernel
// writes where the ring is then to where the driver's part of the command says
// (ModifySRQDriverReq); here that is the reply.
func modifySRQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.ModifySRQReq) abi.Reply {
		q := c.srqs.get(req.SrqHandle)
		if q == nil || req.AttrMask&^(abi.SRQMaxWR|abi.SRQLimit) != 0 {
			return abi.Fail(abi.EINVAL)
		}
		most, _, _ := q.core.Attr()
		resize, limit := req.AttrMask&abi.SRQMaxWR != 0, req.AttrMask&abi.SRQLimit != 0
		if resize {
			if req.MaxWr == 0 || int64(req.MaxWr) > int64(longest.srqWR) {
				return abi.Fail(abi.EINVAL)
			}
			most = int(req.MaxWr)
		}
		if limit && int64(req.SrqLimit) > int64(most) {
			return abi.Fail(abi.EINVAL)
		}
		out := done()
		if resize {
			info, errno := q.resize(int(req.MaxWr))
			if errno != 0 {
				return abi.Fail(errno)
			}
			out.Resp, _ = binary.Append(nil, binary.LittleEndian, info)
		}
		if limit {
			q.core.SetLimit(int(req.SrqLimit))
		}
		return out
	})
}

// resize moves a queue to a ring of another size, and returns where that is.
func (q *ownedSRQ) resize(wr int) (abi.MMInfo, abi.Errno) {
	if _, _, limit := q.core.Attr(); limit > wr {
		return abi.MMInfo{}, abi.EINVAL
	}
	shape := ring.ShapeFor(wr, ring.RecvElem(q.sge))
	space, err := q.client.area.alloc(shape.Size())
	if err != nil {
		return abi.MMInfo{}, errnoOf(err)
	}
	if err := q.core.Resize(space.bytes(), shape); err != nil {
		space.release()
		return abi.MMInfo{}, abi.EINVAL
	}
	q.space.release()
	q.space = space
	return space.info(), 0
}

// querySRQ returns the attributes of a queue (IBTA 11.2.3.2).
func querySRQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.QuerySRQReq) abi.Reply {
		q := c.srqs.get(req.SrqHandle)
		if q == nil {
			return abi.Fail(abi.EINVAL)
		}
		most, _, limit := q.core.Attr()
		return r.answer(abi.QuerySRQResp{MaxWr: uint32(most), MaxSge: uint32(q.sge), SrqLimit: uint32(limit)}, nil)
	})
}

// destroySRQ destroys a queue (IBTA 11.2.3.4).
func destroySRQ(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.DestroySRQReq) abi.Reply {
		q := c.srqs.get(req.SrqHandle)
		switch {
		case q == nil:
			return abi.Fail(abi.ENOENT)
		case q.users > 0:
			return abi.Fail(abi.EBUSY)
		}
		q.core.Close()
		out := abi.DestroySRQResp{EventsReported: c.reported(q)}
		q.space.release()
		q.pd.users--
		c.srqs.release(q.handle)
		return r.answer(out, nil)
	})
}
