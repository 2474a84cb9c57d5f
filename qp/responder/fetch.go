package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Fetch returns the next memory that must be fetched, each once.
func (r *Responder) Fetch() (conn.Fetch, bool) {
	if f, ok := r.exec.fetch.Poll(conn.NeedMessage); ok {
		return f, true
	}
	f, ok := r.out.fetch.Poll(conn.NeedMessage)
	f.Ticket = r.out.ticket
	return f, ok
}

// Fetched has what waited for a fetch go on. It may come late.
func (r *Responder) Fetched(need conn.Need) {
	switch {
	case need == conn.NeedAnswer:
		r.out.fetched()
	case r.exec.fetched(r.answers.epsn) && r.gap.nak.sent:
		r.gap.repeats(r.answers.epsn)
		r.answers.nak(rocev2.NAKSequence, false)
	}
}

// Persisted takes the end of the FLUSH that Fetch has returned. It may come
// late.
func (r *Responder) Persisted(f *conn.Fetch) { r.out.persisted(f) }

// fetched says that the page of a request is there. It reports whether that is
// the expected one.
func (x *executor) fetched(expected rocev2.PSN) bool {
	return x.fetch.Done(conn.NeedMessage) && x.pagePSN == expected
}

// fetched says that the page of a READ's answer is there.
func (t *transmitter) fetched() { t.fetch.Done(conn.NeedAnswer) }

// awaitPage has a READ's answer wait for a page.
func (t *transmitter) awaitPage(e *response) {
	if t.fetch.Pending(conn.NeedAnswer) {
		return
	}
	var m memreg.Missing
	bytes, next := t.left(e)
	v, f := t.data(e, uint64(bytes))
	if f == ib.FaultNone {
		m = v.Missing(0, uint64(next), false)
		v.Release()
	}
	t.fetch.Add(t.exec.c, conn.NeedAnswer, m)
}

// persist has the bytes of a FLUSH brought to stable storage, or says what came
// of that; ib.FaultNotPresent while it is under way.
func (t *transmitter) persist(e *response) ib.Fault {
	switch {
	case e.end != 0:
		return ib.Fault(e.end)
	case e.part || t.fetch.Pending(conn.NeedAnswer):
		return ib.FaultNotPresent
	}
	v, f := t.exec.flushed(t.answers.of(e))
	if f != ib.FaultNone {
		return f
	}
	v.Release()
	t.answers.persisting()
	t.ticket++
	t.fetch.Add(t.exec.c, conn.NeedAnswer, v.Persist())
	return ib.FaultNotPresent
}

// persisted takes the end of what persist has begun.
func (t *transmitter) persisted(f *conn.Fetch) {
	if f.Ticket == t.ticket {
		t.fetch.Done(f.Need)
		t.answers.persisted(f.Fault)
	}
}

// handleTimeout looks whether the rate lets answers go on.
func (t *transmitter) handleTimeout(now clock.Time) {
	t.paced = t.paced && now < t.exec.c.CC.Limit.NotBefore
}

// resume has the answers to READs go on after requests.
func (t *transmitter) resume() { t.yields = false }

// stop waits for no memory and no rate any more.
func (t *transmitter) stop() { t.fetch, t.paced, t.yields = conn.Fetches{}, false, false }
