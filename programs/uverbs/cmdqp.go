//go:build linux

package uverbs

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/programs/uverbs/ring"
)

// ownedQP is a queue pair.
type ownedQP struct {
	object
	all        *queuePairs
	typ        ib.QPType
	core       *hca.QP
	queues     *Queues
	pd         *domain
	send, recv *ownedCQ
	srq        *ownedSRQ // or nil
	sq, rq     *ringSpace
	cap        abi.QPInit          // what it was made with
	groups     map[netip.Addr]bool // that it is attached to
	ready      atomic.Bool         // it takes send requests
}

// queuePairs is the queue pairs of a client.
type queuePairs struct {
	dev       *Device
	ctx       *hca.Context
	area      *area
	events    *events
	doorbells *Doorbells
	handles   *addressHandles
	domains   *table[domain]
	cqs       *table[ownedCQ]
	srqs      *table[ownedSRQ]
	most      int // requests that a queue holds, as queries say
	qps       table[ownedQP]
}

// createQP makes a queue pair (IBTA 11.2.5.1).
func (p *queuePairs) createQP(r *abi.Request, req *abi.CreateQPReq) abi.Reply {
	q, errno := p.make(&req.QPInit)
	if errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(q.created(), q.rings())
}

// exCreateQP makes a queue pair.
func (p *queuePairs) exCreateQP(r *abi.Request, req *abi.ExCreateQPReq) abi.Reply {
	if req.Reserved != 0 {
		return abi.Fail(abi.EINVAL)
	}
	if req.CompMask != 0 || req.CreateFlags != 0 {
		return abi.Fail(abi.EOPNOTSUPP)
	}
	q, errno := p.make(&req.QPInit)
	if errno != 0 {
		return abi.Fail(errno)
	}
	out := abi.ExCreateQPResp{Base: q.created()}
	out.ResponseLength = uint32(binary.Size(out))
	return r.Answer(out, q.rings())
}

// created returns the reply for a queue pair.
func (q *ownedQP) created() abi.CreateQPResp {
	return abi.CreateQPResp{QpHandle: q.handle, Qpn: uint32(q.core.QPN()), MaxSendWr: q.cap.MaxSendWr, MaxRecvWr: q.cap.MaxRecvWr,
		MaxSendSge: q.cap.MaxSendSge, MaxRecvSge: q.cap.MaxRecvSge, MaxInlineData: q.cap.MaxInlineData}
}

// rings says where the rings are.
func (q *ownedQP) rings() abi.CreateQPDriverResp {
	return abi.CreateQPDriverResp{RqMi: q.rq.info(), SqMi: q.sq.info()}
}

// make makes a queue pair.
func (p *queuePairs) make(req *abi.QPInit) (*ownedQP, abi.Errno) {
	q := &ownedQP{object: object{events: p.events, user: req.UserHandle}, all: p, typ: ib.QPType(req.QpType), cap: *req}
	if errno := q.find(); errno != 0 {
		return nil, errno
	}
	_, err := p.qps.add(func(h uint32) (*ownedQP, error) {
		q.handle = h
		return q, q.make()
	})
	if err != nil {
		return nil, errnoOf(err)
	}
	q.use(1)
	return q, 0
}

// use says that a queue pair is there, or no more (-1), to what it is made of.
func (q *ownedQP) use(by int) {
	q.pd.users += by
	q.send.users += by
	q.recv.users += by
	if q.srq != nil {
		q.srq.users += by
	}
}

// find looks up what a queue pair is made of, and checks the rest.
func (q *ownedQP) find() abi.Errno {
	p, r := q.all, &q.cap
	switch q.typ {
	case ib.RC, ib.UC, ib.UD:
	default:
		return abi.EOPNOTSUPP
	}
	q.pd, q.send, q.recv = p.domains.get(r.PdHandle), p.cqs.get(r.SendCqHandle), p.cqs.get(r.RecvCqHandle)
	if q.pd == nil || q.send == nil || q.recv == nil {
		return abi.EINVAL
	}
	if r.IsSrq != 0 {
		if q.srq = p.srqs.get(r.SrqHandle); q.srq == nil {
			return abi.EINVAL
		}
		r.MaxRecvWr, r.MaxRecvSge = 0, 0
	}
	most := p.dev.limits()
	wr, sge := int64(most.WR), int64(most.SGE)
	if int64(r.MaxSendWr) > wr || int64(r.MaxRecvWr) > wr || int64(r.MaxSendSge) > sge || int64(r.MaxRecvSge) > sge || int64(r.MaxInlineData) > int64(most.Inline) {
		return abi.EINVAL
	}
	if p.dev.Dev.Strict() != nil && (int64(r.MaxSendWr) > int64(p.most) || int64(r.MaxRecvWr) > int64(p.most)) {
		return abi.EINVAL // which had room perhaps, but queries say less
	}
	return 0
}

// make makes the rings, the queues and the queue pair. The program learns how
// much the rings hold: it may use all of it.
func (q *ownedQP) make() (err error) {
	p, r := q.all, &q.cap
	defer func() {
		if err != nil {
			q.sq.release()
			q.rq.release()
		}
	}()
	r.MaxSendSge = max(r.MaxSendSge, 1)
	r.MaxInlineData = max(r.MaxInlineData, r.MaxSendSge*16) // an entry of the list has 16 bytes
	if q.sq, err = p.area.alloc(ring.ShapeFor(int(r.MaxSendWr), ring.SendElem(int(r.MaxSendSge), int(r.MaxInlineData)))); err != nil {
		return err
	}
	r.MaxSendWr = q.sq.entries()
	if q.srq == nil {
		r.MaxRecvSge = max(r.MaxRecvSge, 1)
		if q.rq, err = p.area.alloc(ring.ShapeFor(int(r.MaxRecvWr), ring.RecvElem(int(r.MaxRecvSge)))); err != nil {
			return err
		}
		r.MaxRecvWr = q.rq.entries()
	}
	if q.queues, err = newQueues(q); err != nil {
		return err
	}
	if q.core, err = p.ctx.CreateQP(q.queues.Config()); err != nil {
		return err
	}
	q.core.SetUserData(&q.object)
	q.queues.Start(q.core)
	return nil
}

// destroyQP destroys a queue pair (IBTA 11.2.5.4).
func (p *queuePairs) destroyQP(r *abi.Request, req *abi.DestroyQPReq) abi.Reply {
	q := p.qps.get(req.QpHandle)
	if q == nil {
		return abi.Fail(abi.ENOENT)
	}
	q.queues.look()
	q.core.Close()
	q.queues.Close()
	out := abi.DestroyQPResp{EventsReported: q.reported()}
	q.sq.release()
	q.rq.release()
	q.use(-1)
	p.qps.release(q.handle)
	return r.Answer(out, nil)
}

// sends reports whether a queue pair in a state takes send requests: it has
// been connected, or it flushes them.
func sends(s ib.State) bool { return s >= ib.StateRTS }

// postSend is post as a command.
func (p *queuePairs) postSend(r *abi.Request, req *abi.PostSendReq) abi.Reply {
	if req.WrCount != 0 {
		return abi.Fail(abi.EINVAL)
	}
	if errno := p.post(req.QpHandle); errno != 0 {
		return abi.Fail(errno)
	}
	return r.Answer(abi.PostSendResp{}, nil)
}

// post posts what the program has put into the ring of a queue pair.
func (p *queuePairs) post(h uint32) abi.Errno {
	q := p.qps.get(h)
	if q == nil || !q.ready.Load() {
		return abi.EINVAL
	}
	q.queues.Serve()
	return 0
}
