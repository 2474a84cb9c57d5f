//go:build linux

package uverbs

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// ownedSRQ is a shared receive queue.
type ownedSRQ struct {
	object
	pd    *domain
	core  *SharedRecvQueue
	space *ringSpace
	sge   int
	users int // queue pairs that take from it
}

// sharedQueues is the shared receive queues of a client.
type sharedQueues struct {
	dev     *Device
	area    *area
	events  *events
	domains *table[domain]
	srqs    table[ownedSRQ]
}

// createSRQ makes a shared receive queue (IBTA 11.2.3.1).
func (s *sharedQueues) createSRQ(r *abi.Request, req *abi.CreateSRQReq) abi.Reply {
	return s.make(r, req.UserHandle, &req.SRQInit)
}

// createXSRQ makes one, of the kinds that there are: none is of XRC, as with
// Soft-RoCE.
func (s *sharedQueues) createXSRQ(r *abi.Request, req *abi.CreateXSRQReq) abi.Reply {
	if req.SrqType != abi.SRQBasic {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	return s.make(r, req.UserHandle, &req.SRQInit)
}

func (s *sharedQueues) make(r *abi.Request, user uint64, req *abi.SRQInit) abi.Reply {
	pd, most := s.domains.get(req.PdHandle), s.dev.limits()
	if pd == nil || req.MaxWr == 0 || int64(req.MaxWr) > int64(most.SRQWR) || int64(req.MaxSge) > int64(most.SRQSGE) || req.SrqLimit > req.MaxWr {
		return abi.Fail(abi.EINVAL)
	}
	q := &ownedSRQ{object: object{events: s.events, user: user}, pd: pd, sge: max(int(req.MaxSge), 1)}
	_, err := s.srqs.add(func(h uint32) (_ *ownedSRQ, err error) {
		q.handle = h
		q.space, err = s.area.alloc(ring.ShapeFor(int(req.MaxWr), ring.RecvElem(q.sge)))
		if err == nil {
			q.core, err = newSharedRecvQueue(q.space, q.sge, pd.core.Core(),
				func() { q.tell(ib.EventSRQLimit) }, func() { q.tell(ib.EventSRQError) })
		}
		return q, err
	})
	if err != nil {
		return abi.Fail(errnoOf(err))
	}
	q.core.SetLimit(int(req.SrqLimit))
	pd.users++
	return r.Answer(abi.CreateSRQResp{SrqHandle: q.handle, MaxWr: q.space.entries(), MaxSge: uint32(q.sge), Srqn: q.handle},
		abi.CreateSRQDriverResp{Mi: q.space.info(), SrqNum: q.handle})
}

// modifySRQ resizes a queue, or arms its limit (IBTA 11.2.3.3). The kernel
// writes where the ring is then to where the driver's part of the command says
// (ModifySRQDriverReq); here that is the reply.
func (s *sharedQueues) modifySRQ(r *abi.Request, req *abi.ModifySRQReq) abi.Reply {
	q := s.srqs.get(req.SrqHandle)
	if q == nil || req.AttrMask&^(abi.SRQMaxWR|abi.SRQLimit) != 0 {
		return abi.Fail(abi.EINVAL)
	}
	most, _, _ := q.core.Attr()
	resize, limit := req.AttrMask&abi.SRQMaxWR != 0, req.AttrMask&abi.SRQLimit != 0
	if resize {
		if req.MaxWr == 0 || int64(req.MaxWr) > int64(s.dev.limits().SRQWR) {
			return abi.Fail(abi.EINVAL)
		}
		most = int(req.MaxWr)
	}
	if limit && int64(req.SrqLimit) > int64(most) {
		return abi.Fail(abi.EINVAL)
	}
	var out abi.Reply
	if resize {
		if _, _, limit := q.core.Attr(); limit > most {
			return abi.Fail(abi.EINVAL)
		}
		if errno := q.space.move(ring.ShapeFor(most, ring.RecvElem(q.sge)), q.core.Resize); errno != 0 {
			return abi.Fail(errno)
		}
		out.Resp, _ = binary.Append(nil, binary.LittleEndian, q.space.info())
	}
	if limit {
		q.core.SetLimit(int(req.SrqLimit))
	}
	return out
}

// querySRQ returns the attributes of a queue (IBTA 11.2.3.2).
func (s *sharedQueues) querySRQ(r *abi.Request, req *abi.QuerySRQReq) abi.Reply {
	q := s.srqs.get(req.SrqHandle)
	if q == nil {
		return abi.Fail(abi.EINVAL)
	}
	most, _, limit := q.core.Attr()
	return r.Answer(abi.QuerySRQResp{MaxWr: uint32(most), MaxSge: uint32(q.sge), SrqLimit: uint32(limit)}, nil)
}

// destroySRQ destroys a queue (IBTA 11.2.3.4).
func (s *sharedQueues) destroySRQ(r *abi.Request, req *abi.DestroySRQReq) abi.Reply {
	q := s.srqs.get(req.SrqHandle)
	switch {
	case q == nil:
		return abi.Fail(abi.ENOENT)
	case q.users > 0:
		return abi.Fail(abi.EBUSY)
	}
	q.core.Close()
	out := abi.DestroySRQResp{EventsReported: q.reported()}
	q.space.release()
	q.pd.users--
	s.srqs.release(q.handle)
	return r.Answer(out, nil)
}
