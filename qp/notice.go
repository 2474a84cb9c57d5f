package qp

import (
	"cmp"
	"math"
	"time"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// DefaultNotifyInterval is the least time between two notifications to one peer
// queue pair where nothing else is configured: that of the paper on DCQCN (N,
// Zhu et al., SIGCOMM 2015). Adapters ship with 2 to 4 µs, but for all queue
// pairs of a port together.
const DefaultNotifyInterval = 50 * time.Microsecond

// NotifyScope says which queue pairs of an engine share the least time between
// two congestion notifications (Config.NotifyInterval).
type NotifyScope uint8

const (
	// NotifyPerQP: each queue pair has it for itself, as in the paper on
	// DCQCN, where a flow has.
	NotifyPerQP NotifyScope = iota
	// NotifyPerPeer: those that are connected to the same address share it.
	// A UC queue pair has it for itself.
	NotifyPerPeer
	// NotifyPerPort: all of the port share it, as in NVIDIA's adapters
	// (MIN_TIME_BETWEEN_CNPS of mlxconfig is per port).
	NotifyPerPort
)

// NoticeGate bounds how often congestion notifications are sent, where queue
// pairs share that. Else each has a bound of its own.
type NoticeGate struct {
	every int32      // ns
	next  clock.Time // no other one before
}

// NewNoticeGate returns a gate for one notification in interval, which is as in
// Config.NotifyInterval.
func NewNoticeGate(interval time.Duration) NoticeGate {
	interval = cmp.Or(interval, DefaultNotifyInterval)
	return NoticeGate{every: int32(min(max(interval, 0), math.MaxInt32))}
}

// Notices are the congestion notifications that a queue pair owes its peer.
type Notices struct {
	flags  noticeFlags
	every  int32 // Config.NotifyInterval, in ns
	shared *gated
}

// gated is what bounds them. A queue pair has it when the first packet comes
// marked, or the gate is shared: most never need it.
type gated struct {
	gate *NoticeGate // own, or that which others have too
	own  NoticeGate
	held clock.Time // until when marks matter for which it was too early
}

// noticeFlags is what a queue pair knows of its congestion notifications.
type noticeFlags uint8

const (
	noticeDue      noticeFlags = 1 << iota // one is to be sent
	noticeHold                             // Config.NotifyHold
	noticeHeld                             // marks are held
	noticeResponse                         // of a response is one of them
)

func makeNotices(c *Config) (n Notices) {
	n.every = NewNoticeGate(c.NotifyInterval).every
	if c.NotifyHold {
		n.flags = noticeHold
	}
	return n
}

// Share has the queue pair keep to a gate that others have too, and not to its
// own.
func (n *Notices) Share(g *NoticeGate) { n.bounds().gate = g }

// Due reports whether there is a notification to write.
func (n *Notices) Due() bool { return n.flags&noticeDue != 0 }

// bounds returns what bounds the notifications.
func (n *Notices) bounds() *gated {
	if n.shared == nil {
		n.shared = &gated{own: NoticeGate{every: n.every}}
		n.shared.gate = &n.shared.own
	}
	return n.shared
}

// forget forgets what is due and what is held.
func (n *Notices) forget() { n.flags &= noticeHold }

// reset is forget, and the next mark is as the first.
func (n *Notices) reset() {
	if n.forget(); n.shared != nil {
		n.shared.own.next = 0
	}
}

// mark records that a packet was marked, and reports whether a notification is
// to be sent because of it (IBTA A17.9), and whether that is for a response.
// With noticeHold, a mark for which it is too early gets its notification
// later, with the first packet after the interval: the paper has one
// notification in N for a flow if any packet was marked in that time (Zhu et
// al., section 3.1). Without a packet for another interval the mark is
// forgotten: nothing is left then to slow down.
func (n *Notices) mark(now clock.Time, response bool) (due, ofResponse bool) {
	b := n.bounds()
	every := time.Duration(b.gate.every)
	switch {
	case now >= b.gate.next:
		response = response || n.flags&noticeResponse != 0 && now < b.held
		n.flags = n.flags&noticeHold | noticeDue
		b.gate.next = now.Add(every)
		return true, response
	case n.flags&noticeHold != 0:
		n.flags |= noticeHeld
		b.held = b.gate.next.Add(every)
		if response {
			n.flags |= noticeResponse
		}
	}
	return false, false
}

// unhold looks at marks that are held, when a packet has come. It reports what
// mark does.
func (n *Notices) unhold(now clock.Time) (due, ofResponse bool) {
	b := n.shared
	switch {
	case now >= b.held:
		n.flags &^= noticeHeld | noticeResponse
	case now >= b.gate.next: // another queue pair of the gate was first
		return n.mark(now, false)
	}
	return false, false
}

// marked takes a packet of h that the network has marked, which was dropped for
// d, if at all. One without data is not counted: there would be no fewer of
// them.
func (n *Notices) marked(h *Halves, now clock.Time, p *rocev2.Packet, d Drop) {
	info, _ := p.BTH.Opcode.Info()
	if d >= DropState && d <= DropQPN || h.c.Failed() || len(p.Payload) == 0 || info.Operation == rocev2.OpSelectiveAck {
		return // not of this connection, or not any more
	}
	h.c.Stats.Rare().ECNMarked++
	response := info.Role == rocev2.RoleResponse
	if info.Service != rocev2.ServiceUD { // else there is no peer to tell
		if due, ofResponse := n.mark(now, response); due {
			tell(h.req, now, ofResponse)
			return
		}
	}
	if response && h.req != nil {
		h.req.Marked(now, cc.MarkedAgain)
	}
}

// unmarked takes a packet, or a run of them, that the network has not marked:
// marks that are held may have their notification now.
func (n *Notices) unmarked(req *requester.Requester, now clock.Time) {
	if n.flags&noticeHeld == 0 {
		return
	}
	if due, response := n.unhold(now); due {
		tell(req, now, response)
	}
}

// tell has the requester, if there is one, know of a notification for a
// response.
func tell(req *requester.Requester, now clock.Time, response bool) {
	if response && req != nil {
		req.Marked(now, cc.MarkedResponse)
	}
}

// poll writes a congestion notification of c, if one is due: a BTH with BECN
// and 16 reserved bytes. PSN and AckReq are 0, for it belongs to no message. It
// returns the length, 0 if there is none.
func (n *Notices) poll(c *conn.Conn, buf []byte) int {
	if !n.Due() {
		return 0
	}
	n.flags &^= noticeDue
	c.Stats.Rare().CNPsSent++
	p := rocev2.Packet{BTH: c.BTH(0, 0)}
	p.BTH.Opcode = rocev2.CNP
	p.BTH.BECN = true
	return len(p.AppendHeaders(buf[:0]))
}
