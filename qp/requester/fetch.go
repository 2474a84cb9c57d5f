package requester

import (
	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// Fetch returns the next memory that must be fetched, each once.
func (r *recovery) Fetch() (conn.Fetch, bool) { return r.fetch.Poll(conn.NeedPayload) }

// WantsFetch reports whether Fetch has something to return.
func (r *recovery) WantsFetch() bool { return r.fetch.Any() }

// Fetched has what waited for a fetch go on. It may come late.
func (r *recovery) Fetched(now clock.Time, need conn.Need) {
	if !r.fetch.Done(need) {
		return
	}
	switch {
	case need == conn.NeedPayload && r.una != r.nxt:
		r.retry.start(now)
		r.armProbe(now)
	case need == conn.NeedResult:
		r.paging = false
	}
}

// needPayload has the memory fetched that a packet is made of.
func (r *recovery) needPayload(rq *request, list []ib.SGE) {
	if !r.fetch.Pending(conn.NeedPayload) {
		r.fetch.Add(conn.NeedPayload, r.c.Memory.MissingLocal(r.c.PD, list, uint64(rq.off), uint64(rq.n), 0))
	}
}

// dropResult drops a response to the oldest request, whose n bytes of data go
// to byte off of its list, and stops the requester.
func (r *recovery) dropResult(w *queue.Send, off uint64, n int) conn.Drop {
	if !r.fetch.Pending(conn.NeedResult) {
		list := r.queue.List(r.queue.Head, w)
		r.fetch.Add(conn.NeedResult, r.c.Memory.MissingLocal(r.c.PD, list, off, uint64(n), ib.LocalWrite))
	}
	r.paging = true
	r.rewind()
	return conn.DropNotPresent
}
