package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Config is what a responder is made with.
type Config struct {
	Source    queue.RecvSource // nil: a ring of its own, of the following
	OwnSource bool             // see conn.ReceivesConfig
	RecvCQ    queue.CompletionSink

	Domain queue.XRCDomain // of an XRC target, which has no Source, and no RecvCQ; else nil

	MaxRecvWR, MaxRecvSGE int

	// Invalidate ends a key of this side on behalf of a SEND with
	// invalidate. On a fault, or if it is nil, the peer gets a NAK.
	Invalidate func(key ib.Key) ib.Fault
}

// executor does what requests ask of this side: of its receives, its memory and
// its keys. It does not know their order, and says nothing to the peer. It is
// asked in PSN order, and holds the message under way.
type executor struct {
	c          *conn.Conn
	receives   conn.Receives
	xrc        *target // nil: not an XRC target
	invalidate func(key ib.Key) ib.Fault

	fetch   conn.Fetches
	pagePSN rocev2.PSN // of the request that was dropped because a page must be fetched

	rkey ib.Key // WRITE: where the message under way goes,
	va   uint64
	left uint32 // and how many bytes are still to come
	done uint32 // bytes of the message so far

	told        rocev2.PSN       // the last message that the peer may send by the credits that it has
	taken       bool             // a message since the last credits has taken a receive of the queue pair's own
	established bool             // EventCommEst was raised
	message     rocev2.Operation // the multi-packet message under way: OpSend, OpWrite or 0
}

// outcome is what came of a request.
type outcome struct {
	verdict  verdict
	syndrome rocev2.Syndrome // if it is refused: the NAK,
	status   ib.Status       // the completion of the receive in hand,
	fault    ib.Fault        // and why
}

type verdict uint8

const (
	executed   verdict = iota
	ended              // the same, of the last packet of a message
	busy               // it must wait for earlier answers to be sent
	notReady           // there is no receive
	notPresent         // a page must be fetched first
	refused            // the connection ends
)

func refuse(s rocev2.Syndrome, status ib.Status, f ib.Fault) outcome {
	return outcome{refused, s, status, f}
}

func invalidRequest() outcome {
	return refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, ib.FaultNone)
}

// refuseFault refuses a request for its remote key or memory.
func refuseFault(f ib.Fault) outcome {
	switch f {
	case ib.FaultMisaligned:
		return refuse(rocev2.NAKInvalidRequest, ib.StatusRemInvReqErr, f)
	case ib.FaultMemory:
		return refuse(rocev2.NAKRemoteOperational, ib.StatusRemOpErr, f)
	}
	return refuse(rocev2.NAKRemoteAccess, ib.StatusRemAccessErr, f)
}

func (x *executor) init(c *conn.Conn, config *Config) {
	*x = executor{c: c, invalidate: config.Invalidate}
	source, sge := config.Source, config.MaxRecvSGE
	if config.Domain != nil {
		x.xrc = &target{domain: config.Domain}
		source, sge = noReceives{}, ib.MaxSGE
	}
	x.receives.Init(c, conn.ReceivesConfig{Source: source, OwnSource: config.OwnSource, CQ: config.RecvCQ,
		Depth: config.MaxRecvWR, SGE: sge})
}

// admits checks what a request is, before what it asks for: the opcode
// sequence, the queue that a request of XRC names, the rights of the queue
// pair. If it returns false the request is invalid.
func (x *executor) admits(p *rocev2.Packet, info *rocev2.OpcodeInfo) bool {
	if x.c.State == ib.StateRTR && !x.established {
		x.established = true
		x.c.Events.Raise(ib.EventCommEstablished)
	}
	if info.First == (x.message != 0) || (x.message != 0 && x.message != info.Operation) {
		return false
	}
	if x.xrc != nil && !x.selectSRQ(p, info) {
		return false
	}
	need := accessFor(p, info.Operation)
	return x.c.Attr.Access&need == need
}

// accessFor returns the right that the queue pair must have.
func accessFor(p *rocev2.Packet, op rocev2.Operation) ib.Access {
	switch op {
	case rocev2.OpWrite, rocev2.OpAtomicWrite:
		return ib.RemoteWrite
	case rocev2.OpReadRequest:
		return ib.RemoteRead
	case rocev2.OpCompareSwap, rocev2.OpFetchAdd:
		return ib.RemoteAtomic
	case rocev2.OpFlush:
		return flushAccess(p.FETH.Type)
	}
	return 0
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

// send takes a packet of a SEND into the receive in hand.
func (x *executor) send(p *rocev2.Packet, info *rocev2.OpcodeInfo) outcome {
	if info.First {
		if !x.receives.Take() {
			return outcome{verdict: notReady}
		}
		x.done = 0
	}
	n := len(p.Payload)
	if !info.Payload.Allows(n, x.c.MTU) || uint64(x.done)+uint64(n) > ib.MaxMessage {
		return invalidRequest()
	}
	if uint64(x.done)+uint64(n) > x.receives.Space {
		return refuse(rocev2.NAKInvalidRequest, ib.StatusLocLenErr, ib.FaultOutOfBounds)
	}
	if n > 0 {
		pd, list := x.receives.Recv.PD, x.receives.Recv.SGList
		f := x.c.Memory.Scatter(pd, list, uint64(x.done), p.Payload)
		if f == ib.FaultNotPresent {
			return x.await(p, x.c.Memory.MissingLocal(pd, list, uint64(x.done), uint64(n), ib.LocalWrite))
		}
		if f != ib.FaultNone {
			return refuse(rocev2.NAKRemoteOperational, ib.StatusLocProtErr, f)
		}
	}
	// After the copy, which may be put off: a key can be invalidated only
	// once.
	if info.WithInv {
		if f := x.endKey(ib.Key(p.IETH.RKey)); f != ib.FaultNone {
			return refuse(rocev2.NAKRemoteAccess, ib.StatusRemAccessErr, f)
		}
	}
	x.done += uint32(n)
	if !info.Last {
		x.message = rocev2.OpSend
		return outcome{}
	}
	return x.finish(p, info, ib.WCRecv)
}

// endKey invalidates a key for the peer.
func (x *executor) endKey(key ib.Key) ib.Fault {
	switch {
	case x.xrc != nil:
		return x.c.Memory.Invalidate(x.c.PD, x.c.QPN, key)
	case x.invalidate == nil:
		return ib.FaultUnknownKey
	}
	return x.invalidate(key)
}

// write takes a packet of a WRITE.
func (x *executor) write(p *rocev2.Packet, info *rocev2.OpcodeInfo) outcome {
	if info.WithImm && !x.receives.Take() {
		return outcome{verdict: notReady}
	}
	n := uint32(len(p.Payload))
	if info.First {
		if p.RETH.Length > ib.MaxMessage {
			return invalidRequest()
		}
		x.va, x.rkey, x.left, x.done = p.RETH.VA, ib.Key(p.RETH.RKey), p.RETH.Length, 0
	}
	// Exactly what is left, or a full packet and more to come (IBTA
	// 9.7.4.1.6).
	if !info.Payload.Allows(int(n), x.c.MTU) || n > x.left || info.Last != (n == x.left) {
		return invalidRequest()
	}
	if n > 0 {
		// The whole range is checked with the first packet, so nothing
		// is written if it straddles the region (IBTA 9.7.4.1.5).
		v, f := x.c.Memory.Resolve(x.c.PD, x.c.QPN, x.rkey, x.va, uint64(x.left), ib.RemoteWrite)
		if f != ib.FaultNone {
			return refuseFault(f)
		}
		if info.Last { // a program may watch for it
			f = v.CopyInLast(0, p.Payload)
		} else {
			f = v.CopyIn(0, p.Payload)
		}
		v.Release()
		if f == ib.FaultNotPresent {
			return x.await(p, v.Missing(0, uint64(n), true))
		}
		if f != ib.FaultNone {
			return refuseFault(f)
		}
	}
	x.va += uint64(n)
	x.left -= n
	x.done += n
	if !info.Last {
		x.message = rocev2.OpWrite
		return outcome{}
	}
	return x.finish(p, info, ib.WCRecvWriteImm)
}

// finish ends a SEND or WRITE, and completes the receive in hand, if any.
func (x *executor) finish(p *rocev2.Packet, info *rocev2.OpcodeInfo, op ib.WCOpcode) outcome {
	x.message = 0
	if x.receives.Held {
		x.receives.Held = false
		x.taken = !x.receives.Shared
		x.c.Stats.RecvDone++
		wc := x.receives.WC(x.receives.Recv.ID, op)
		wc.ByteLen, wc.Solicited = x.done, p.BTH.Solicited
		if info.WithInv {
			wc.WithInv, wc.InvalidatedKey = true, ib.Key(p.IETH.RKey)
		}
		if info.WithImm {
			wc.WithImm, wc.Imm = true, p.Imm
		}
		if !x.c.Complete(x.receives.Recv.CQ, wc) {
			return refuse(rocev2.NAKRemoteOperational, ib.StatusLocQPOpErr, ib.FaultNone) // nothing has received it
		}
	}
	return outcome{verdict: ended}
}

// credits returns an acknowledgement of the messages before and up to msn, with
// the number of receives posted as credits, if that is known (IBTA 9.7.7.2).
// The receive of a message under way counts too: to the peer that message has
// the number MSN + 1.
func (x *executor) credits(msn rocev2.PSN) rocev2.AETH {
	x.taken = false
	if x.receives.Shared {
		return rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: msn}
	}
	n := x.receives.Own.Len()
	if x.receives.Held {
		n++
	}
	a := rocev2.AETH{Syndrome: rocev2.SyndromeACK(rocev2.CreditCode(n)), MSN: msn}
	n, _ = a.Syndrome.Credits()
	x.told = msn.Add(n)
	return a
}

// starves reports whether the peer, which has sent so many messages, has taken
// all the receives that it knows of, and there are more.
func (x *executor) starves(msn rocev2.PSN) bool {
	return x.taken && !msn.Before(x.told) && x.receives.Own.Len() > 0
}

// abort ends the connection because of a request that is refused: completion of
// the receive in hand, event, ERR.
func (x *executor) abort(o outcome) {
	switch o.syndrome {
	case rocev2.NAKRemoteAccess:
		x.c.Events.Raise(ib.EventQPAccessError)
	case rocev2.NAKInvalidRequest:
		x.c.Events.Raise(ib.EventQPRequestError)
	default:
		if !x.receives.Held {
			x.c.Events.Raise(ib.EventQPFatal)
		}
	}
	if x.receives.Held {
		x.receives.Fail(o.status, conn.VendorErr(o.fault))
	}
	x.c.Fail(conn.EndRefused)
}

// await has a page fetched that the expected request needs.
func (x *executor) await(p *rocev2.Packet, m memreg.Missing) outcome {
	if !x.awaits(p.BTH.PSN) {
		x.pagePSN = p.BTH.PSN
		x.fetch.Add(x.c, conn.NeedMessage, m)
	}
	return outcome{verdict: notPresent}
}

// awaits reports whether the expected request was dropped because of a page,
// and will be asked for when that is there.
func (x *executor) awaits(expected rocev2.PSN) bool {
	return x.fetch.Pending(conn.NeedMessage) && x.pagePSN == expected
}

// flush gives back all receives, and waits for no memory any more.
func (x *executor) flush() {
	x.fetch = conn.Fetches{}
	x.receives.Flush()
}

func (x *executor) reset() {
	x.receives.Reset()
	x.forgetSRQ()
	*x = executor{c: x.c, receives: x.receives, xrc: x.xrc, invalidate: x.invalidate}
}
