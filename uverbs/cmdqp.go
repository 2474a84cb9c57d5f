//go:build linux

package uverbs

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	"github.com/gosoftroce/rocev2/uverbs/quota"
	"github.com/gosoftroce/rocev2/uverbs/ring"
)

// ownedQP is a queue pair.
type ownedQP struct {
	client     *Client
	handle     uint32
	user       uint64
	typ        ib.QPType
	core       *hca.QP
	queues     *Queues
	pd         *domain
	send, recv *ownedCQ
	srq        *ownedSRQ // or nil
	sq, rq     *ringSpace
	cap        abi.ExCreateQPReq   // what it was made with
	raised     tally               // asynchronous events
	home       *pipe               // where they go
	groups     map[netip.Addr]bool // that it is attached to

	serving sync.Mutex // held while the send queue is looked at
	gone    bool       // guarded by serving
}

// element implements affiliated.
func (q *ownedQP) element() (*pipe, uint64, *tally) { return q.home, q.user, &q.raised }

// createQP makes a queue pair (IBTA 11.2.5.1).
func createQP(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.CreateQPReq) abi.Reply {
		q, errno := c.makeQP(&abi.ExCreateQPReq{
			UserHandle: req.UserHandle, PdHandle: req.PdHandle,
			SendCqHandle: req.SendCqHandle, RecvCqHandle: req.RecvCqHandle, SrqHandle: req.SrqHandle,
			MaxSendWr: req.MaxSendWr, MaxRecvWr: req.MaxRecvWr, MaxSendSge: req.MaxSendSge, MaxRecvSge: req.MaxRecvSge,
			MaxInlineData: req.MaxInlineData, SqSigAll: req.SqSigAll, QpType: req.QpType, IsSrq: req.IsSrq,
		})
		if errno != 0 {
			return abi.Fail(errno)
		}
		return r.answer(q.created(), q.rings())
	})
}

// exCreateQP makes a queue pair.
func exCreateQP(c *Client, r *call) abi.Reply {
	return decodeExtended(r, 56, func(req *abi.ExCreateQPReq) abi.Reply {
		if req.Reserved != 0 {
			return abi.Fail(abi.EINVAL)
		}
		if req.CompMask != 0 || req.CreateFlags != 0 {
			return abi.Fail(abi.EOPNOTSUPP)
		}
		q, errno := c.makeQP(req)
		if errno != 0 {
			return abi.Fail(errno)
		}
		out := abi.ExCreateQPResp{Base: q.created()}
		out.ResponseLength = uint32(binary.Size(out))
		return r.answer(out, q.rings())
	})
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

// makeQP makes a queue pair.
func (c *Client) makeQP(req *abi.ExCreateQPReq) (*ownedQP, abi.Errno) {
	q := &ownedQP{client: c, home: c.home, user: req.UserHandle, typ: ib.QPType(req.QpType), cap: *req}
	if errno := q.find(); errno != 0 {
		return nil, errno
	}
	h, ok := c.qps.reserve()
	if !ok {
		return nil, abi.ENOMEM
	}
	q.handle = h
	if errno := q.make(); errno != 0 {
		c.qps.release(h)
		return nil, errno
	}
	q.pd.users++
	q.send.users++
	q.recv.users++
	if q.srq != nil {
		q.srq.users++
	}
	c.qps.set(h, q)
	return q, 0
}

// find looks up what a queue pair is made of, and checks the rest.
func (q *ownedQP) find() abi.Errno {
	c, r := q.client, &q.cap
	switch q.typ {
	case ib.RC, ib.UC, ib.UD:
	default:
		return abi.EOPNOTSUPP
	}
	q.pd, q.send, q.recv = c.domains.get(r.PdHandle), c.cqs.get(r.SendCqHandle), c.cqs.get(r.RecvCqHandle)
	if q.pd == nil || q.send == nil || q.recv == nil {
		return abi.EINVAL
	}
	if r.IsSrq != 0 {
		if q.srq = c.srqs.get(r.SrqHandle); q.srq == nil {
			return abi.EINVAL
		}
		r.MaxRecvWr, r.MaxRecvSge = 0, 0
	}
	if most := int64(longest.wr); int64(r.MaxSendWr) > most || int64(r.MaxRecvWr) > most || r.MaxSendSge > ib.MaxSGE || r.MaxRecvSge > ib.MaxSGE ||
		r.MaxInlineData > ib.MaxInline {
		return abi.EINVAL
	}
	return 0
}

// make makes the rings, the queues and the queue pair. The program learns how
// much the rings hold: it may use all of it.
func (q *ownedQP) make() abi.Errno {
	c, r := q.client, &q.cap
	r.MaxSendSge = max(r.MaxSendSge, 1)
	r.MaxInlineData = max(r.MaxInlineData, r.MaxSendSge*16) // an entry of the list has 16 bytes
	send := ring.ShapeFor(int(r.MaxSendWr), ring.SendElem(int(r.MaxSendSge), int(r.MaxInlineData)))
	r.MaxSendWr = uint32(send.Cap())
	config := QueuesConfig{
		Type: q.typ, Domain: q.pd.core, SignalAll: r.SqSigAll != 0,
		SendShape: send, MaxSendSGE: int(r.MaxSendSge), MaxInline: int(r.MaxInlineData),
		SendCQ: q.send.core, RecvCQ: q.recv.core,
		IPv4:   c.dev.Dev.Addr().Unmap().Is4(),
		Handle: c.addressHandle, Account: c.account,
		Bulk: &c.bulk, Kick: func() { c.ringFor(q.handle) },
	}
	if q.srq != nil {
		config.SRQ = q.srq.core
	} else {
		r.MaxRecvSge = max(r.MaxRecvSge, 1)
		config.MaxRecvSGE = int(r.MaxRecvSge)
		config.RecvShape = ring.ShapeFor(int(r.MaxRecvWr), ring.RecvElem(config.MaxRecvSGE))
		r.MaxRecvWr = uint32(config.RecvShape.Cap())
	}
	err := q.allocate(&config)
	if err == nil {
		q.queues, err = NewQueues(config)
	}
	if err == nil {
		q.core, err = c.ctx.CreateQP(q.queues.Config())
	}
	if err != nil {
		q.sq.release()
		q.rq.release()
		return errnoOf(err)
	}
	q.setReady(false)
	q.core.SetUserData(q)
	q.queues.Start(q.core)
	return 0
}

// allocate takes the memory of the rings.
func (q *ownedQP) allocate(config *QueuesConfig) (err error) {
	if q.sq, err = q.client.area.alloc(config.SendShape.Size()); err != nil {
		return err
	}
	config.Send = q.sq.bytes()
	if q.srq == nil {
		if q.rq, err = q.client.area.alloc(config.RecvShape.Size()); err != nil {
			return err
		}
		config.Recv = q.rq.bytes()
	}
	return nil
}

// destroyQP destroys a queue pair (IBTA 11.2.5.4).
func destroyQP(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.DestroyQPReq) abi.Reply {
		q := c.qps.get(req.QpHandle)
		if q == nil {
			return abi.Fail(abi.ENOENT)
		}
		q.core.Close()
		q.end()
		out := abi.DestroyQPResp{EventsReported: c.reported(q)}
		q.sq.release()
		q.rq.release()
		q.pd.users--
		q.send.users--
		q.recv.users--
		if q.srq != nil {
			q.srq.users--
		}
		c.account.Give(quota.Attachments, int64(len(q.groups)))
		c.qps.release(q.handle)
		return r.answer(out, nil)
	})
}

// HasQP reports whether the queue pair with a number is the client's.
func (c *Client) HasQP(n rocev2.QPN) bool {
	return slices.ContainsFunc(c.qps.all(), func(q *ownedQP) bool { return q.core.QPN() == n })
}

// serve posts what waits in the send queue. It reports whether there is more.
func (q *ownedQP) serve() (more bool) {
	q.serving.Lock()
	defer q.serving.Unlock()
	return !q.gone && q.queues.Drain(turnOf)
}

// end has the memory of the rings looked at no more. The queue pair is closed.
func (q *ownedQP) end() {
	q.serving.Lock()
	q.gone = true
	q.queues.Close()
	q.serving.Unlock()
}

// setReady has the program know whether the queue pair can send.
func (q *ownedQP) setReady(ready bool) {
	word, bit := &q.client.area.unready[q.handle/64], uint64(1)<<(q.handle%64)
	if ready {
		word.And(^bit)
	} else {
		word.Or(bit)
	}
}

// sends reports whether a queue pair in a state takes send requests: it has
// been connected, or it flushes them.
func sends(s ib.State) bool { return s >= ib.StateRTS }

// postSend says that there is something in the ring of a queue pair. What was
// posted too early stays there until the queue pair can send, as in the kernel.
func postSend(c *Client, r *call) abi.Reply {
	return decode(r, func(req *abi.PostSendReq) abi.Reply {
		q := c.qps.get(req.QpHandle)
		if q == nil || req.WrCount != 0 || !sends(q.core.State()) {
			return abi.Fail(abi.EINVAL)
		}
		c.ringFor(q.handle)
		return r.answer(abi.PostSendResp{}, nil)
	})
}
