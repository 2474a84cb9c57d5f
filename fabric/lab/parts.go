package lab

import (
	"cmp"
	"slices"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// part is what hosts of a part of the network have to say to all. What is
// called when something completes runs beside what is called in other parts:
// it changes what is of its own host, and notes here what it has come to.
type part struct {
	over []*Flow
	err  error // the first one
	at   Time  // when that was
	host int   // where, of several at that time the lowest
	_    [64]byte
}

// before reports whether the error of p is the one to be told, rather than that
// of o: which one that is does not depend on what is in which part.
func (p *part) before(o *part) bool {
	return cmp.Or(cmp.Compare(p.at, o.at), cmp.Compare(p.host, o.host)) < 0
}

// fail ends the run, by an error at a host.
func (r *run) fail(host int, err error) {
	e := part{err: err, at: Time(r.net.TimeOf(host)), host: host}
	if p := &r.parts[r.net.PartOf(host)]; p.err == nil || e.before(p) {
		p.err, p.at, p.host = e.err, e.at, e.host
	}
}

// settle counts what the parts have noted, while none of them runs.
func (r *run) settle() {
	var first *part
	for i := range r.parts {
		p := &r.parts[i]
		r.open -= len(p.over)
		for _, f := range p.over {
			if f.stream != nil {
				r.under--
			}
			r.under -= len(f.conns)
			if r.s.Adapter.Shared {
				f.conns = nil
			}
		}
		if !r.s.Adapter.Shared || r.tcp != nil {
			r.closed = append(r.closed, p.over...)
		}
		clear(p.over)
		p.over = p.over[:0]
		if p.err != nil && (first == nil || p.before(first)) {
			first = p
		}
	}
	if first != nil && r.err == nil {
		r.err, r.at = first.err, first.at
	}
	r.jobs = slices.DeleteFunc(r.jobs, (*job).settle)
}

// untilReaped is between two times at which the receiving ends of connections
// are closed whose flows are over. The sending host knows when they are, and no
// other one knows it at the same moment.
const untilReaped = 10 * Microsecond

// reap has the receiving ends closed, again and again while there are flows
// with an end.
func (r *run) reap() {
	if r.reaps || r.s.Adapter.Shared && r.tcp == nil {
		return
	}
	r.reaps = true
	r.net.At(r.net.Now()+event.Time(untilReaped), func() {
		r.settle()
		slices.SortFunc(r.closed, func(a, b *Flow) int {
			return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.number, b.number))
		})
		for _, f := range r.closed {
			r.rec.ended(f)
			for _, c := range f.conns {
				c.y.Close()
			}
			f.conns = nil
			if f.stream != nil {
				f.stream.Close()
				f.stream = nil
			}
		}
		clear(r.closed)
		r.closed = r.closed[:0]
		r.reaps = false
		if r.under > r.endless {
			r.reap()
		}
	})
}
