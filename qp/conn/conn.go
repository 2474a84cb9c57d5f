package conn

import (
	"math/bits"
	"net/netip"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Conn is what the halves of a connection share.
type Conn struct {
	QPN rocev2.QPN
	// Opcodes is what the opcodes of the service have beyond those of RC: 0
	// of RC itself, XRCSendFirst of XRC. Requests of XRC carry an XRCETH.
	Opcodes rocev2.Opcode
	State   ib.State
	end     End   // that package qp has not seen yet
	Shift   uint8 // MTU is 1 << Shift
	MTU     int   // path MTU in bytes
	Attr    ib.Attr
	Peer    netip.Addr // Attr.AV.DGID, unmapped and without zone

	Memory *memreg.Table
	PD     *memreg.PD // of the queue pair; a receive has its own; of an XRC target that of the message under way

	// Pool is for packets after a gap. It is nil unless the peer is
	// native: then it buffers them too.
	Pool *queue.Pool
	SRTT time.Duration // smoothed round trip time, 0 while it is not known

	CC Congestion

	Stats   Tally
	Events  Events
	most    uint32   // see Bound
	Scratch *Scratch // nil only of a queue pair that is closed
}

// End is why a half, or the program, ended the connection.
type End uint8

const (
	EndNone End = iota
	// EndLocal is an error of this side's requests, or the program's wish.
	// The peer gets the acknowledgement of what was executed, and nothing
	// else.
	EndLocal
	// EndOverflow is a completion of the send queue that was lost. A peer
	// that waits for the answer to a READ is told.
	EndOverflow
	// EndRefused is a request of the peer that was refused. The responder
	// has put the NAK among its answers.
	EndRefused
)

// Fail ends the connection. It does nothing in ERR.
func (c *Conn) Fail(why End) {
	if c.State != ib.StateErr {
		c.end = why
		c.SetState(ib.StateErr)
	}
}

// SetState changes the state, and nothing else.
func (c *Conn) SetState(s ib.State) {
	before := c.State
	if c.State = s; c.Traces() {
		c.Trace(trace.Event{Kind: trace.State, Before: before, After: s})
	}
}

// TakeEnd returns, once, why the connection ended; EndNone if it did not.
func (c *Conn) TakeEnd() End {
	e := c.end
	c.end = EndNone
	return e
}

// Failed reports whether the state is ERR.
func (c *Conn) Failed() bool { return c.State == ib.StateErr }

// Reset drops all but the identity, the memory and the counters.
func (c *Conn) Reset() {
	*c = Conn{QPN: c.QPN, Opcodes: c.Opcodes, Memory: c.Memory, PD: c.PD, Pool: c.Pool, Stats: c.Stats, Scratch: c.Scratch,
		CC: Congestion{Control: c.CC.Control}}
}

// SetMTU takes the path MTU.
func (c *Conn) SetMTU(m rocev2.MTU) {
	c.Attr.PathMTU = m
	c.MTU = m.Bytes()
	c.Shift = uint8(bits.TrailingZeros(uint(c.MTU)))
}

// PSNs returns how many packets carry n bytes: one at least.
func (c *Conn) PSNs(n uint32) uint32 { return max(1, (n+uint32(c.MTU)-1)>>c.Shift) }

// XRC reports whether the connection is of XRC.
func (c *Conn) XRC() bool { return c.Opcodes != 0 }

// BTH returns the header of a packet to the peer. The opcode of an operation of
// XRC is given as that of RC.
func (c *Conn) BTH(op rocev2.Opcode, psn rocev2.PSN) rocev2.BTH {
	return rocev2.BTH{Opcode: op | c.Opcodes, PKey: rocev2.DefaultPKey, DestQPN: c.Attr.DestQPN, PSN: psn}
}

// Scratch is memory for what lasts no longer than a call. Connections that are
// not used at once may share it.
type Scratch struct {
	Word   [8]byte
	Flight cc.Flight
	Trace  *trace.Hook // gets what the connections decide, if it is not nil
	wc     ib.WC       // on its way to a sink
}

// WC clears and returns the scratch completion, for Complete.
func (c *Conn) WC() *ib.WC {
	wc := &c.Scratch.wc
	*wc = ib.WC{QPN: c.QPN}
	return wc
}

// Traces reports whether Trace has somewhere to go.
func (c *Conn) Traces() bool { return c.Scratch != nil && c.Scratch.Trace != nil }

// Trace hands over an event, if it has somewhere to go, with what all events
// have filled in. On the way of each packet Traces is asked before, so that no
// event is made for nothing.
func (c *Conn) Trace(e trace.Event) {
	if !c.Traces() {
		return
	}
	l := &c.CC.Limit
	e.QPN, e.Window, e.PSNs, e.Rate, e.SRTT = c.QPN, uint64(l.Bytes), l.PSNs, l.Rate, c.SRTT
	c.Scratch.Trace.Take(e)
}

// Complete delivers a completion. It returns false if the sink refused it.
func (c *Conn) Complete(sink queue.CompletionSink, wc *ib.WC) bool {
	if sink.Complete(wc) {
		return true
	}
	c.Stats.Rare().CQOverflows++
	c.Events.Raise(ib.EventQPFatal)
	return false
}

// Buffer keeps a packet that came at now after the gap at the expected PSN and
// takes psns PSNs. The result is DropNone, or d if the packet is not kept, or
// DropConflict.
func (c *Conn) Buffer(b *queue.Reorder, now clock.Time, p *rocev2.Packet, psns uint32, expected rocev2.PSN, d Drop) Drop {
	if c.Pool == nil || c.Failed() || len(p.Payload) > c.MTU {
		return d
	}
	switch b.Insert(c.Pool, now, p, psns, expected) {
	case queue.Buffered:
		c.Stats.Rare().Reordered++
		return DropNone
	case queue.Conflict:
		c.Stats.Rare().ReorderDiscarded++
		return DropConflict
	}
	return d
}

// Expire gives back what is kept for longer than an age at now.
func (c *Conn) Expire(b *queue.Reorder, now clock.Time, age time.Duration) {
	if n := b.Expire(now.Add(-age)); n > 0 {
		c.Stats.Rare().ReorderDiscarded += uint64(n)
	}
}

// VendorErr is what WC.VendorErr says about a memory fault.
func VendorErr(f ib.Fault) uint32 {
	if f == ib.FaultNone {
		return 0
	}
	return ib.VendorFault | uint32(f)
}
