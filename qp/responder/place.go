package responder

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// ATOMIC WRITE and FLUSH (IBTA A19) are answered like an empty READ.
//
// What writes waits behind a FLUSH until that is done: a program may point to
// what it has made persistent with the next request, without waiting. So that
// request is put off, and asked for behind the answer to the FLUSH. READs do
// not write, and go on.

// executeAtomicWrite writes 8 aligned bytes at once. Its length is checked
// before its payload is looked at.
func (r *Responder) executeAtomicWrite(p *rocev2.Packet) conn.Drop {
	if r.res.depth == 0 || p.RETH.Length != 8 || len(p.Payload) != 8 {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if r.busy(1) {
		return r.putOff()
	}
	v, f := r.c.Memory.Resolve(r.c.PD, r.c.QPN, ib.Key(p.RETH.RKey), p.RETH.VA, 8, ib.RemoteWrite)
	if f != ib.FaultNone {
		return r.refuseFault(f)
	}
	if p.RETH.VA&7 != 0 {
		f = ib.FaultMisaligned
	} else {
		f = v.Store64(0, binary.NativeEndian.Uint64(p.Payload))
	}
	v.Release()
	if f == ib.FaultNotPresent {
		return r.dropForPage(v.Missing(0, 8, true))
	}
	if f != ib.FaultNone {
		return r.refuseFault(f)
	}
	psn := r.epsn
	index := r.reserve(resource{kind: resourceAtomicWrite, srqn: r.xrc.current(), opcode: p.BTH.Opcode, psns: 1})
	r.out.push(response{kind: responseEmpty, res: index, psn: psn, msn: r.msn})
	return conn.DropNone
}

// executeFlush accepts a FLUSH. What was written before it is visible to all
// already: packets are executed in order, under a lock. So only persistence is
// left to do, when its answer comes to be sent.
func (r *Responder) executeFlush(p *rocev2.Packet) conn.Drop {
	if r.res.depth == 0 || !p.FETH.Type.Valid() || !p.FETH.Level.Valid() {
		return r.refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
	}
	if r.busy(1) {
		return r.putOff()
	}
	n := r.flushResource(p)
	v, f := r.resolveFlush(&n)
	if f != ib.FaultNone {
		return r.refuseFault(f)
	}
	v.Release()
	psn, kind := r.epsn, n.flushAnswer()
	if kind == responseFlush {
		r.flushing++
	}
	index := r.reserve(n)
	r.out.push(response{kind: kind, res: index, psn: psn, msn: r.msn})
	return conn.DropNone
}

// flushAccess returns the rights that a FLUSH needs.
func flushAccess(t rocev2.FlushType) ib.Access {
	var a ib.Access
	if t&rocev2.FlushGlobal != 0 {
		a |= ib.FlushGlobal
	}
	if t&rocev2.FlushPersistent != 0 {
		a |= ib.FlushPersistent
	}
	return a
}

// flushResource returns what is kept of a FLUSH.
func (r *answerer) flushResource(p *rocev2.Packet) resource {
	return resource{kind: resourceFlush, srqn: r.xrc.namedBy(p), opcode: p.BTH.Opcode, psns: 1, va: p.RETH.VA, rkey: p.RETH.RKey, length: p.RETH.Length,
		value: uint64(p.FETH.Level)<<8 | uint64(p.FETH.Type)}
}

func (e *resource) flushType() rocev2.FlushType   { return rocev2.FlushType(e.value) }
func (e *resource) flushLevel() rocev2.FlushLevel { return rocev2.FlushLevel(e.value >> 8) }

// flushAnswer returns the kind of the answer to a FLUSH that is to be executed.
func (e *resource) flushAnswer() responseKind {
	if e.flushType()&rocev2.FlushPersistent != 0 {
		return responseFlush
	}
	return responseEmpty
}

// answer returns the kind of the answer to what was executed, other than a
// READ.
func (e *resource) answer() responseKind {
	if e.kind == resourceAtomic {
		return responseAtomic
	}
	return responseEmpty
}

// resolveFlush checks what a FLUSH is about: the range, or all that the key
// stands for.
func (r *answerer) resolveFlush(e *resource) (memreg.View, ib.Fault) {
	need, key := flushAccess(e.flushType()), ib.Key(e.rkey)
	if e.flushLevel() == rocev2.FlushRegion {
		return r.c.Memory.ResolveAll(r.domainOf(e.srqn), r.c.QPN, key, need)
	}
	return r.c.Memory.Resolve(r.domainOf(e.srqn), r.c.QPN, key, e.va, uint64(e.length), need)
}

// persist has the bytes of a FLUSH brought to stable storage, or says what came
// of that; ib.FaultNotPresent while it is under way.
func (r *answerer) persist(e *response) ib.Fault {
	switch {
	case e.end != 0:
		return ib.Fault(e.end)
	case e.part || r.fetch.Pending(conn.NeedAnswer):
		return ib.FaultNotPresent
	}
	v, f := r.resolveFlush(r.res.at(e.res))
	if f != ib.FaultNone {
		return f
	}
	v.Release()
	e.part = true
	r.ticket++
	r.fetch.Add(conn.NeedAnswer, v.Persist())
	return ib.FaultNotPresent
}

// Persisted takes the end of what persist has begun. It may come late.
func (r *answerer) Persisted(f *conn.Fetch) {
	if f.Ticket != r.ticket {
		return
	}
	r.fetch.Done(f.Need)
	for i := r.out.head; i != r.out.tail; i++ {
		e := r.out.at(i)
		if e.kind != responseFlush || !e.part {
			continue
		}
		e.part = false
		if f.Fault != ib.FaultNone {
			e.end = uint32(f.Fault)
			return
		}
		e.kind = responseEmpty
		if r.res.at(e.res).pending == pendingFirst {
			r.flushing--
		}
		return
	}
}

// duplicateFlush answers a FLUSH again. It was done when its answer was sent,
// so there is nothing to do any more. One that lost its place in the ring,
// because the peer had more outstanding than agreed, is executed again, see
// readAgain.
func (r *answerer) duplicateFlush(p *rocev2.Packet) {
	e, index := r.res.find(p.BTH.PSN)
	switch {
	case e == nil:
		r.flushAgain(p)
	case e.kind == resourceFlush && e.opcode == p.BTH.Opcode && e.pending == pendingNone:
		r.c.Stats.Rare().FlushReplays++
		e.pending = pendingReplay
		r.out.insert(response{kind: responseEmpty, res: index, psn: e.first, msn: r.msn})
	}
}

func (r *answerer) flushAgain(p *rocev2.Packet) {
	if !r.res.wasPushed(p.BTH.PSN, 1, r.epsn) || !p.FETH.Type.Valid() || !p.FETH.Level.Valid() {
		return
	}
	n := r.flushResource(p)
	n.first = p.BTH.PSN
	if need := flushAccess(n.flushType()); r.c.Attr.Access&need != need {
		r.out.nakDuplicate(rocev2.NAKInvalidRequest, n.first, r.msn)
		return
	}
	v, f := r.resolveFlush(&n)
	if f != ib.FaultNone {
		s, _ := faultNAK(f)
		r.out.nakDuplicate(s, n.first, r.msn)
		return
	}
	v.Release()
	index, ok := r.res.addBeside(n)
	if !ok {
		return // as if lost
	}
	r.c.Stats.Rare().FlushReplays++
	r.out.insert(response{kind: n.flushAnswer(), res: index, psn: n.first, msn: r.msn})
}
