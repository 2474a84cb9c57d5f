package qp

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/qp/responder"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Halves are the two halves of a reliable service, and what depends on both:
// which of them a packet is for, whose packets go first, and the way to ERR. An
// XRC initiator has no responder, an XRC target no requester. The unreliable
// services have neither half here: then nothing but the getters is called.
type Halves struct {
	c    *conn.Conn
	req  *requester.Requester
	resp *responder.Responder
	typ  ib.QPType
	led  bool // a request has gone before the acknowledgement that waits

	service rocev2.Service // of typ; here, where it costs no memory
}

// sends reports whether requests may be sent, and their responses be taken.
func (h *Halves) sends() bool {
	return h.req != nil && (h.c.State == ib.StateRTS || h.c.State == ib.StateSQD)
}

// handle hands a packet of the peer to the half that it is for.
func (h *Halves) handle(now clock.Time, a *Arrival, info *rocev2.OpcodeInfo) Drop {
	sends := h.sends()
	switch {
	case info.Role == rocev2.RoleRequest && h.resp == nil: // to an XRC initiator
		return DropService
	case info.Role == rocev2.RoleResponse && h.req == nil: // to an XRC target
		return DropService
	case info.Role == rocev2.RoleRequest:
		return h.resp.HandleRequest(now, a, info)
	case info.Role == rocev2.RoleResponse && sends:
		return h.req.HandleResponse(now, a.Packet, info)
	case info.Role == rocev2.RoleNotify && sends:
		h.c.Stats.Rare().CNPsReceived++
		h.req.Marked(now, cc.Notified)
		return DropNone
	case info.Role == rocev2.RoleNotify && h.resp != nil && !h.c.Failed(): // it sends nothing but the answers to READs
		h.c.Stats.Rare().CNPsReceived++
		h.c.Marked(now, &cc.Flight{}, cc.Notified)
		return DropNone
	}
	return DropState
}

// poll writes what the halves have to send: answers before requests, but for
// what lead and yields say. It fills in Bytes, Blocked and AckDelayed of p.
func (h *Halves) poll(now clock.Time, limit Limit, out *conn.Output, p *Polled) {
	yields, done := false, false
	var owed conn.Owed
	if h.resp != nil {
		owed = h.resp.Owes()
		yields = h.resp.Yields() && now >= h.c.CC.Limit.NotBefore
	}
	if owed != conn.OwesNothing {
		if owed != conn.OwesAck {
			owed = h.resp.Poll(now, true, out)
		}
		done = !limit.AckFirst && h.lead(now, limit, owed, out, p)
		owed = h.resp.Poll(now, limit.DelayAck, out)
	}
	h.led = h.led && h.resp.Waiting()
	if !done && h.sends() {
		var bytes int
		bytes, p.Blocked = h.req.Poll(now, limit.Bytes-p.Bytes, out)
		p.Bytes += bytes
		if h.c.Failed() && h.resp != nil { // a fault on this side; what was received is acknowledged all the same
			h.flush()
			owed = h.resp.Poll(now, false, out)
		}
	}
	if yields { // and the requests have had their turn
		h.resp.Resume()
		owed = h.resp.Poll(now, limit.DelayAck, out)
	}
	p.AckDelayed = limit.DelayAck && owed == conn.OwesAck
}

// leadCost is what a packet costs at most that goes before an acknowledgement.
const leadCost = 1 << 10

// lead has a small packet of a request go before a lone acknowledgement. That
// is the shorter one of the two, so both can leave, and arrive, as one
// segmented datagram: there only the last one may be shorter. It reports
// whether there was no request to send.
func (h *Halves) lead(now clock.Time, limit Limit, owed conn.Owed, out *conn.Output, p *Polled) (none bool) {
	if h.led || owed == conn.OwesNothing || owed == conn.OwesAnswers || !h.sends() || h.req.NextCost() > leadCost {
		return false
	}
	before := out.Packets
	rest := out.Only(min(out.Left(), 1))
	p.Bytes, p.Blocked = h.req.Poll(now, limit.Bytes, out)
	out.Only(out.Left() + rest)
	h.led = out.Packets > before
	if h.c.Failed() {
		h.flush()
	}
	return !h.led
}

// flush completes the way to ERR, if a half has just ended the connection: both
// queues are flushed, sends first.
func (h *Halves) flush() {
	why := h.c.TakeEnd()
	if why == conn.EndNone {
		return
	}
	if h.req != nil {
		h.req.Flush()
	}
	if h.resp != nil {
		h.resp.Flush(why)
	}
}

// Tell hands what switches have told of the path to congestion control, if that
// looks at it, see cc.Telemetry. It is called before the packet is handled that
// has brought it.
func (h *Halves) Tell(now clock.Time, hops []cc.Hop) { cc.Tell(h.c.CC.Control, now, hops) }

// inFlight is QP.InFlight.
func (h *Halves) inFlight() (bytes int, silent bool) {
	if h.req == nil { // datagrams lie in the peer's buffer too, and nothing tells for how long
		return 0, false
	}
	bytes, silent = h.req.InFlight()
	if !h.sends() {
		bytes = 0
	}
	return bytes, silent
}

// idle reports whether poll would have nothing to do.
func (h *Halves) idle() bool {
	return h.c.State == ib.StateRTS && h.req != nil && h.req.Idle() && (h.resp == nil || !h.resp.Waiting() && !h.resp.Yields())
}

// PollFinal writes what the peer must be told before the queue pair is taken
// away: the acknowledgement of what was executed, whether it was asked for or
// not, and the NAK that ended the connection. Call it until it returns 0. It
// drops all other answers.
func (h *Halves) PollFinal(buf []byte) int {
	if h.resp == nil {
		return 0
	}
	n := h.resp.PollFinal(buf)
	if n > 0 {
		h.c.Stats.TxPackets++
	}
	return n
}

// Receipt writes the acknowledgement of all that was executed, for a peer that
// asks again when the queue pair has gone: that of the PSNs from first up to
// last. It returns its length, 0 if there is nothing to say.
func (h *Halves) Receipt(buf []byte) (n int, first, last rocev2.PSN) {
	if h.resp == nil {
		return 0, 0, 0
	}
	n, first = h.resp.Receipt(buf)
	return n, first, h.resp.ExpectedPSN().Add(-1)
}

// reorder has the halves keep packets after gaps in p from now on.
func (h *Halves) reorder(p *Pool) {
	h.DiscardHeld()
	h.c.Pool = p
}

// DiscardHeld drops what the reorder buffers hold, as if it had been lost.
func (h *Halves) DiscardHeld() {
	if h.req != nil {
		h.req.DiscardHeld()
	}
	if h.resp != nil {
		h.resp.DiscardHeld()
	}
}

// Held returns the number of packets that the reorder buffers hold now.
func (h *Halves) Held() (n int) {
	if h.req != nil {
		n = h.req.Held()
	}
	if h.resp != nil {
		n += h.resp.Held()
	}
	return n
}
