package qp

import (
	"cmp"
	"math"
	"time"

	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
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

// ShareNotices has q keep to a gate that other queue pairs have too, and not to
// its own.
func ShareNotices(q *QP, g *NoticeGate) { noticesOf(q).gate = g }

// notices are the congestion notifications of a queue pair. It has them when
// the first packet comes marked, or the gate is shared: most never need them.
type notices struct {
	gate *NoticeGate // own, or that which others have too
	own  NoticeGate
	held clock.Time // until when marks matter for which it was too early
}

// noticesOf returns those of q.
func noticesOf(q *QP) *notices {
	if q.notices == nil {
		q.notices = &notices{own: NoticeGate{every: q.cnpEvery}}
		q.notices.gate = &q.notices.own
	}
	return q.notices
}

// noticeFlags is what a queue pair knows of its congestion notifications.
type noticeFlags uint8

const (
	noticeDue      noticeFlags = 1 << iota // one is to be sent
	noticeHold                             // Config.NotifyHold
	noticeHeld                             // marks are held
	noticeResponse                         // of a response is one of them
)

// forgetNotices forgets what is due and what is held.
func forgetNotices(q *QP) { q.cnp &= noticeHold }

// notice records that a packet was marked, and reports whether a notification
// is to be sent because of it (IBTA A17.9). With noticeHold, a mark for which
// it is too early gets its notification later, with the first packet after the
// interval: the paper has one notification in N for a flow if any packet was
// marked in that time (Zhu et al., section 3.1). Without a packet for another
// interval the mark is forgotten: nothing is left then to slow down. A
// notification for a response, or one that is held, is one for the requester.
func notice(q *QP, now clock.Time, response bool) bool {
	n := noticesOf(q)
	every := time.Duration(n.gate.every)
	switch {
	case now >= n.gate.next:
		response = response || q.cnp&noticeResponse != 0 && now < n.held
		q.cnp = q.cnp&noticeHold | noticeDue
		n.gate.next = now.Add(every)
		if response && q.req != nil {
			q.req.Marked(now, cc.MarkedResponse)
		}
		return true
	case q.cnp&noticeHold != 0:
		q.cnp |= noticeHeld
		n.held = n.gate.next.Add(every)
		if response {
			q.cnp |= noticeResponse
		}
	}
	return false
}

// unhold looks at marks that are held, when a packet has come.
func unhold(q *QP, now clock.Time) {
	n := q.notices
	switch {
	case now >= n.held:
		q.cnp &^= noticeHeld | noticeResponse
	case now >= n.gate.next: // another queue pair of the gate was first
		notice(q, now, false)
	}
}

// marked takes a packet that the network has marked, which handle has dropped
// for d, if at all. One without data is not counted: there would be no fewer of
// them.
func (q *QP) marked(now clock.Time, p *rocev2.Packet, d Drop) {
	info, _ := p.BTH.Opcode.Info()
	if d >= DropState && d <= DropQPN || q.conn.Failed() || len(p.Payload) == 0 || info.Operation == rocev2.OpSelectiveAck {
		return // not of this connection, or not any more
	}
	q.conn.Stats.Rare().ECNMarked++
	response := info.Role == rocev2.RoleResponse
	if q.ud == nil && notice(q, now, response) { // else there is no peer to tell
		return
	}
	if response && q.req != nil {
		q.req.Marked(now, cc.MarkedAgain)
	}
}

// pollCNP writes a CNP, which is due.
func pollCNP(q *QP, out *conn.Output) {
	if buf := out.Room(); buf != nil {
		out.CommitNotice(PollNotice(q, buf))
	}
}

// NoticeDue reports whether PollNotice has a notification to write.
func NoticeDue(q *QP) bool { return q.cnp&noticeDue != 0 }

// PollNotice writes a congestion notification, if one is due, for a driver that
// has it go beside what Poll writes: a BTH with BECN and 16 reserved bytes. PSN
// and AckReq are 0, for it belongs to no message. It returns the length, 0 if
// there is none.
func PollNotice(q *QP, buf []byte) int {
	if q.cnp&noticeDue == 0 {
		return 0
	}
	q.cnp &^= noticeDue
	q.conn.Stats.Rare().CNPsSent++
	p := rocev2.Packet{BTH: q.conn.BTH(0, 0)}
	p.BTH.Opcode = rocev2.CNP
	p.BTH.BECN = true
	return len(p.AppendHeaders(buf[:0]))
}
