package requester

import "github.com/gosoftroce/rocev2/clock"

// A peer answers what asks for it. While nothing in flight does, its silence
// says nothing, and a large window takes longer to be sent than a short path to
// answer.

// mustAsk is a sinceAck with which the next packet asks in any case.
const mustAsk = 1 << 30

// unasked reports whether nothing in flight asks for an answer, and the peer is
// not probed.
func unasked(r *recovery) bool { return r.rtt.asked.Before(r.una) && r.rtt.probes == 0 }

// asksFirst has the next packet ask for an answer, and reports whether it does:
// the peer is asked before it is taken for silent.
func asksFirst(r *recovery, now clock.Time) bool {
	if !unasked(r) || r.sinceAck == mustAsk || r.cur == r.queue.Tail || r.rnr.waiting || r.paging {
		return false
	}
	r.sinceAck = mustAsk
	r.armProbe(now)
	return true
}

// asksAnew has the timers begin anew with a packet that asks for an answer, as
// nothing else in flight does, if they would end before that can come: until
// now the peer had none to give.
func asksAnew(r *recovery, now clock.Time) {
	if unasked(r) && r.rtt.known && r.rtt.earlier(r.retry.deadline) < now.Add(r.rtt.late()) {
		r.retry.heard(now)
		r.armProbe(now)
	} else if r.rtt.few && r.nxt.Ahead(r.una) >= fewInFlight {
		r.rtt.many(now)
	}
}
