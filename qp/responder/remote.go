package responder

import (
	"encoding/binary"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// READs, atomics, ATOMIC WRITEs and FLUSHes: the requests that have an answer
// of their own. ATOMIC WRITE and FLUSH (IBTA A19) are answered like an empty
// READ.
//
// What writes waits after a FLUSH until that is done: a program may point to
// what it has made persistent with the next request, without waiting. So that
// request is put off, and asked for after the answer to the FLUSH. READs do
// not write, and go on.

// wellFormed checks the lengths and types of such a request.
func wellFormed(p *rocev2.Packet, op rocev2.Operation) bool {
	switch op {
	case rocev2.OpReadRequest:
		return p.RETH.Length <= ib.MaxMessage
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		return true
	case rocev2.OpAtomicWrite:
		return p.RETH.Length == 8 && len(p.Payload) == 8
	case rocev2.OpFlush:
		return p.FETH.Type.Valid() && p.FETH.Level.Valid()
	}
	return false
}

// execute executes such a request, and returns the value of an atomic. Of a
// READ or FLUSH it checks the memory: the data is read when the responses are
// sent. An empty READ may have any key (IBTA 9.7.4.1.5).
//
// What was written before a FLUSH is visible to all already: packets are
// executed in order, under a lock. So only persistence is left to do, when its
// answer comes to be sent.
func (x *executor) execute(p *rocev2.Packet, op rocev2.Operation) (value uint64, o outcome) {
	var v memreg.View
	var f ib.Fault
	switch op {
	case rocev2.OpReadRequest:
		if p.RETH.Length == 0 {
			return 0, outcome{}
		}
		v, f = x.data(named(x.c, p), ib.Key(p.RETH.RKey), p.RETH.VA, uint64(p.RETH.Length))
	case rocev2.OpFlush:
		var e resource
		e.keep(x.c, p, op, 0)
		v, f = x.flushed(&e)
	case rocev2.OpAtomicWrite:
		return 0, x.atomicWrite(p)
	default:
		return x.atomic(p, op)
	}
	if f != ib.FaultNone {
		return 0, refuseFault(f)
	}
	v.Release()
	return 0, outcome{}
}

// executeAgain is execute for a READ or FLUSH that was executed before.
func (x *executor) executeAgain(p *rocev2.Packet, op rocev2.Operation) outcome {
	if need := accessFor(p, op); x.c.Attr.Access&need != need {
		return invalidRequest()
	}
	_, o := x.execute(p, op)
	return o
}

// data returns memory that a READ asks for, whose request has named a shared
// receive queue, or none.
func (x *executor) data(srqn uint32, key ib.Key, va, n uint64) (memreg.View, ib.Fault) {
	return x.c.Memory.Resolve(x.domain(srqn), x.c.QPN, key, va, n, ib.RemoteRead)
}

// flushed returns what a FLUSH is about: the range, or all that the key stands
// for.
func (x *executor) flushed(e *resource) (memreg.View, ib.Fault) {
	need, key := flushAccess(e.flushType()), ib.Key(e.rkey)
	if e.flushLevel() == rocev2.FlushRegion {
		return x.c.Memory.ResolveAll(x.domain(e.srqn), x.c.QPN, key, need)
	}
	return x.c.Memory.Resolve(x.domain(e.srqn), x.c.QPN, key, e.va, uint64(e.length), need)
}

// atomic executes an atomic. The address must be aligned (IBTA 9.4.5.1).
func (x *executor) atomic(p *rocev2.Packet, op rocev2.Operation) (old uint64, o outcome) {
	a := &p.AtomicETH
	v, f := x.c.Memory.Resolve(x.c.PD, x.c.QPN, ib.Key(a.RKey), a.VA, 8, ib.RemoteAtomic)
	if f != ib.FaultNone {
		return 0, refuseFault(f)
	}
	switch {
	case a.VA&7 != 0:
		f = ib.FaultMisaligned
	case op == rocev2.OpCompareSwap:
		old, f = v.CompareSwap64(0, a.Compare, a.SwapAdd)
	default:
		old, f = v.FetchAdd64(0, a.SwapAdd)
	}
	return old, x.stored(p, &v, f)
}

// atomicWrite writes 8 aligned bytes at once.
func (x *executor) atomicWrite(p *rocev2.Packet) outcome {
	v, f := x.c.Memory.Resolve(x.c.PD, x.c.QPN, ib.Key(p.RETH.RKey), p.RETH.VA, 8, ib.RemoteWrite)
	if f != ib.FaultNone {
		return refuseFault(f)
	}
	if p.RETH.VA&7 != 0 {
		f = ib.FaultMisaligned
	} else {
		f = v.Store64(0, binary.NativeEndian.Uint64(p.Payload))
	}
	return x.stored(p, &v, f)
}

// stored ends the access of an atomic to memory.
func (x *executor) stored(p *rocev2.Packet, v *memreg.View, f ib.Fault) outcome {
	v.Release()
	switch f {
	case ib.FaultNone:
		return outcome{}
	case ib.FaultNotPresent:
		return x.await(p, v.Missing(0, 8, true))
	}
	return refuseFault(f)
}
