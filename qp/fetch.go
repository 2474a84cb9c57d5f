package qp

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Memory may have pages that must be fetched first (memreg.PagedMemory). A queue pair never waits for one: what needs it is
// put off, the driver fetches it elsewhere, and says when it is there.
//
//	payload  the requester stops before the packet
//	result   a response is dropped; the requester stops, and asks again from it on
//	message  a request is dropped in silence; when its page is there, a sequence NAK asks for it
//	answer   what waits to be sent stops before a response of a READ
//
// The requester's timer is stopped meanwhile, and no retry is spent: what is in flight may lack the packet that asks for
// an acknowledgement. A peer whose request waits so
// long that its timer runs out repeats it, and spends its own.

// waiting is which part of a queue pair waits for a page.
type waiting uint8

const (
	waitPayload waiting = iota
	waitResult
	waitMessage
	waitAnswer
	numWaiting
)

// Fetch is memory that must be fetched so that a queue pair can go on.
type Fetch struct {
	memreg.Missing
	what waiting
}

// absence is what a queue pair waits for. It takes memory when there is something.
type absence struct {
	fetches [numWaiting]memreg.Missing
	wanted  [numWaiting]bool // PollFetch has not returned it yet
	pending [numWaiting]bool // Fetched was not called yet
	any     bool             // something is wanted
	psn     rocev2.PSN       // of the request that was dropped
}

// await takes note of what to fetch.
func (q *QP) await(what waiting, m memreg.Missing) {
	if q.absent == nil {
		q.absent = &absence{}
	}
	a := q.absent
	if a.pending[what] && (what != waitMessage || a.psn == q.resp.epsn) {
		return
	}
	if what == waitMessage {
		a.psn = q.resp.epsn
	}
	a.fetches[what], a.wanted[what], a.pending[what], a.any = m, true, true, true
}

// Absent reports whether PollFetch has something to return.
func (q *QP) Absent() bool { return q.absent != nil && q.absent.any }

// PollFetch returns the next memory that the queue pair needs fetched, each once. The driver calls Fetched with it
// afterwards, also when it could not be fetched: then the access shows what is wrong. Other work of the queue pair goes on
// meanwhile.
func (q *QP) PollFetch() (Fetch, bool) {
	if !q.Absent() {
		return Fetch{}, false
	}
	a := q.absent
	for what := range a.wanted {
		if a.wanted[what] {
			f := Fetch{Missing: a.fetches[what], what: waiting(what)}
			a.wanted[what], a.fetches[what] = false, memreg.Missing{}
			return f, true
		}
	}
	a.any = false
	return Fetch{}, false
}

// Fetched has what waited for f go on. It may come late, when nothing waits any more. PollTransmit may then have something
// to send.
func (q *QP) Fetched(now clock.Time, f Fetch) {
	a := q.absent
	if a == nil || !a.pending[f.what] || a.wanted[f.what] {
		return
	}
	a.pending[f.what] = false
	r := &q.resp
	switch {
	case f.what == waitPayload && q.req.una != q.req.nxt:
		q.req.retry.start(now)
		q.req.rtt.arm(now)
	case f.what == waitResult:
		q.req.paging = false
	case f.what == waitMessage && r.latch && r.epsn == a.psn:
		r.firstGap = r.epsn
		r.out.nak(rocev2.NAKSequence, r.epsn, r.msn)
	}
}

// waitsForPayload reports that the requester stops before a packet.
func (q *QP) waitsForPayload() bool { return q.absent != nil && q.absent.pending[waitPayload] }

// waitsForPage reports that the expected request was dropped and will be asked for.
func (q *QP) waitsForPage() bool {
	a := q.absent
	return a != nil && a.pending[waitMessage] && a.psn == q.resp.epsn
}

// dropForPage drops the expected request. What follows it may be kept, and gets no NAK: that comes with the page.
func (q *QP) dropForPage(m memreg.Missing) Drop {
	r := &q.resp
	r.latch, r.rearm, r.firstGap = true, true, r.epsn
	q.await(waitMessage, m)
	return DropNotPresent
}

// dropResult drops a response to the oldest request, whose data goes to byte off of its list, and stops the requester.
func (q *QP) dropResult(w *sendWQE, off uint64, n int) Drop {
	r := &q.req
	q.await(waitResult, q.cfg.Memory.MissingLocal(q.cfg.PD, r.queue.list(r.head, w), off, uint64(n), ib.LocalWrite))
	r.paging = true
	r.rewind()
	return DropNotPresent
}

// awaitAnswer has a READ's answer wait.
func (q *QP) awaitAnswer(e *response) {
	res := q.resp.res.at(e.res)
	off := ahead(e.psn, res.first) << q.mtuShift
	var m memreg.Missing
	v, f := q.cfg.Memory.Resolve(q.cfg.PD, q.cfg.QPN, ib.Key(res.rkey), res.va+uint64(off), uint64(e.end-off), ib.RemoteRead)
	if f == ib.FaultNone {
		m = v.Missing(0, uint64(min(e.end-off, uint32(q.mtu))), false)
		v.Release()
	}
	q.await(waitAnswer, m)
}
