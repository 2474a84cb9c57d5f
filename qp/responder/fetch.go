package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

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
