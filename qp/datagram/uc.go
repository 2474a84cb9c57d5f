package datagram

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// ReceiverConfig is what a receiver is made with.
type ReceiverConfig struct {
	Source    queue.RecvSource // nil: a ring of its own, of the following
	OwnSource bool             // see conn.ReceivesConfig
	RecvCQ    queue.CompletionSink

	MaxRecvWR, MaxRecvSGE int
}

// receiver is what both receiving halves have. It never answers.
type receiver struct {
	c        *conn.Conn
	receives conn.Receives
	fetch    conn.Fetches
}

func (r *receiver) init(c *conn.Conn, config *ReceiverConfig) {
	r.c = c
	r.receives.Init(c, conn.ReceivesConfig{Source: config.Source, OwnSource: config.OwnSource, CQ: config.RecvCQ,
		Depth: config.MaxRecvWR, SGE: config.MaxRecvSGE})
}

// Post queues a receive, see conn.Receives.
func (r *receiver) Post(wr *ib.RecvWR) error { return r.receives.Post(wr) }

// Drain flushes some of what a source of its own has in ERR, see conn.Receives.
func (r *receiver) Drain() (more bool) { return r.receives.Drain() }

// Owes returns what waits to be sent: there is nothing.
func (r *receiver) Owes() conn.Owed { return conn.OwesNothing }

// HandleTimeout does what is due at now: nothing ever is.
func (r *receiver) HandleTimeout(clock.Time) {}

// Deadline returns when HandleTimeout wants to be called, and whether at all.
func (r *receiver) Deadline() (clock.Time, bool) { return 0, false }

// Flush completes every receive with WR_FLUSH_ERR, on the way to ERR.
func (r *receiver) Flush(conn.End) {
	r.fetch = conn.Fetches{}
	r.receives.Flush()
}

// Fetch returns the next memory that must be fetched, each once.
func (r *receiver) Fetch() (conn.Fetch, bool) { return r.fetch.Poll(conn.NeedMessage) }

// Fetched records that memory was fetched.
func (r *receiver) Fetched(need conn.Need) { r.fetch.Done(need) }

// want has memory fetched, for the messages to come.
func (r *receiver) want(m memreg.Missing) conn.Drop {
	if !r.fetch.Pending(conn.NeedMessage) {
		r.fetch.Add(r.c, conn.NeedMessage, m)
	}
	return conn.DropNotPresent
}

// place puts payload at byte off of the receive in hand. Any other result than
// DropNone says that it could not: a page must be fetched first, or the receive
// has completed with the fault of its memory, which is an error of this side
// (IBTA 11.6.2).
func (r *receiver) place(off uint64, payload []byte) conn.Drop {
	if len(payload) == 0 {
		return conn.DropNone
	}
	recv := &r.receives.Recv
	switch f := r.c.Memory.Scatter(recv.PD, recv.SGList, off, payload); f {
	case ib.FaultNone:
		return conn.DropNone
	case ib.FaultNotPresent:
		return r.want(r.c.Memory.MissingLocal(recv.PD, recv.SGList, off, uint64(len(payload)), ib.LocalWrite))
	default:
		return r.end(ib.StatusLocProtErr, f)
	}
}

// end completes the receive in hand with an error, which ends the connection.
func (r *receiver) end(s ib.Status, f ib.Fault) conn.Drop {
	r.receives.Fail(s, conn.VendorErr(f))
	r.c.Fail(conn.EndLocal)
	return conn.DropInvalid
}

// deliver completes the receive in hand with what wc, of the receives, says.
func (r *receiver) deliver(wc *ib.WC) conn.Drop {
	r.receives.Held = false
	r.c.Stats.RecvDone++
	if !r.c.Complete(r.receives.Recv.CQ, wc) {
		r.c.Fail(conn.EndOverflow)
	}
	return conn.DropNone
}

// UCReceiver is the receiving half of an unreliable connection (IBTA 9.8.2).
type UCReceiver struct {
	receiver
	message
}

// message is where executing is.
type message struct {
	epsn        rocev2.PSN       // the next packet of the message under way
	op          rocev2.Operation // the message under way: OpSend, OpWrite or 0
	established bool             // EventCommEstablished was raised

	done uint32 // bytes so far
	left uint32 // WRITE: bytes still to come
	va   uint64 // WRITE: where they go
	rkey ib.Key
}

// Init makes a receiver of c, which is in RESET.
func (r *UCReceiver) Init(c *conn.Conn, config ReceiverConfig) {
	*r = UCReceiver{}
	r.init(c, &config)
}

// Reset drops everything but the memory of the ring.
func (r *UCReceiver) Reset() {
	r.receives.Reset()
	r.fetch, r.message = conn.Fetches{}, message{}
}

// ReadyToReceive expects PSN first, on the way to RTR.
func (r *UCReceiver) ReadyToReceive(first rocev2.PSN) { r.epsn = first }

// ExpectedPSN returns the PSN after the last packet.
func (r *UCReceiver) ExpectedPSN() rocev2.PSN { return r.epsn }

// HandleRequest takes a packet. One that begins a message is taken whatever its
// PSN; another one must be the next of its message (IBTA 9.8.2.2).
func (r *UCReceiver) HandleRequest(a *conn.Arrival, info *rocev2.OpcodeInfo) conn.Drop {
	p := a.Packet
	inOrder := p.BTH.PSN == r.epsn
	r.epsn = p.BTH.PSN.Next()
	if r.c.State == ib.StateRTR && !r.established {
		r.established = true
		r.c.Events.Raise(ib.EventCommEstablished)
	}
	switch {
	case info.First:
		r.abandon()
		r.done = 0
	case r.op == 0 || !inOrder:
		r.abandon()
		return conn.DropOutOfOrder
	case r.op != info.Operation:
		r.abandon()
		return conn.DropInvalid
	}
	d := r.execute(p, info)
	if d != conn.DropNone {
		r.abandon()
	}
	return d
}

// execute takes the next packet of a message.
func (r *UCReceiver) execute(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	var d conn.Drop
	if info.Operation == rocev2.OpSend {
		d = r.executeSend(p, info)
	} else {
		d = r.executeWrite(p, info)
	}
	if d != conn.DropNone {
		return d
	}
	r.done += uint32(len(p.Payload))
	r.op = info.Operation
	if info.Last {
		r.op = 0
		return r.finish(p, info)
	}
	return conn.DropNone
}

// abandon drops the message under way, if there is one. The receive that it has
// taken stays in hand.
func (r *UCReceiver) abandon() {
	if r.op != 0 {
		r.op = 0
		r.c.Stats.Rare().MessagesDropped++
	}
}

// executeSend puts a packet of a SEND into the receive in hand. One that is too
// long for it is an error of the receive (IBTA 11.6.2).
func (r *UCReceiver) executeSend(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if !r.receives.Take() {
		return conn.DropRNR
	}
	n := len(p.Payload)
	end := uint64(r.done) + uint64(n)
	if !info.Payload.Allows(n, r.c.MTU) || end > ib.MaxMessage {
		return conn.DropInvalid
	}
	if end > r.receives.Space {
		return r.end(ib.StatusLocLenErr, ib.FaultOutOfBounds)
	}
	return r.place(uint64(r.done), p.Payload)
}

// executeWrite takes a packet of a WRITE. The whole range is checked with the
// first one, and what is left of it with the others: the key may have ended.
func (r *UCReceiver) executeWrite(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	if r.c.Attr.Access&ib.RemoteWrite == 0 {
		return conn.DropInvalid
	}
	n := uint32(len(p.Payload))
	if info.First {
		if p.RETH.Length > ib.MaxMessage {
			return conn.DropInvalid
		}
		r.va, r.rkey, r.left = p.RETH.VA, ib.Key(p.RETH.RKey), p.RETH.Length
	}
	if !info.Payload.Allows(int(n), r.c.MTU) || n > r.left || info.Last != (n == r.left) {
		return conn.DropInvalid
	}
	if info.WithImm && !r.receives.Take() {
		return conn.DropRNR
	}
	if n > 0 {
		v, f := r.c.Memory.Resolve(r.c.PD, r.c.QPN, r.rkey, r.va, uint64(r.left), ib.RemoteWrite)
		if f != ib.FaultNone {
			return conn.DropInvalid
		}
		if info.Last { // a program may watch for it
			f = v.CopyInLast(0, p.Payload)
		} else {
			f = v.CopyIn(0, p.Payload)
		}
		v.Release()
		if f == ib.FaultNotPresent {
			return r.want(v.Missing(0, uint64(n), true))
		}
		if f != ib.FaultNone {
			return conn.DropInvalid
		}
	}
	r.va += uint64(n)
	r.left -= n
	return conn.DropNone
}

// finish ends a message, and completes the receive that it takes, if any.
func (r *UCReceiver) finish(p *rocev2.Packet, info *rocev2.OpcodeInfo) conn.Drop {
	op := ib.WCRecv
	if info.Operation == rocev2.OpWrite {
		if !info.WithImm {
			return conn.DropNone // a receive in hand is another message's
		}
		op = ib.WCRecvWriteImm
	}
	wc := r.receives.WC(r.receives.Recv.ID, op)
	wc.ByteLen, wc.Solicited, wc.WithImm = r.done, p.BTH.Solicited, info.WithImm
	if info.WithImm {
		wc.Imm = p.Imm
	}
	return r.deliver(wc)
}

// Receives returns the number of receives in the own ring, for tests.
func (r *receiver) Receives() int { return r.receives.Own.Len() }
