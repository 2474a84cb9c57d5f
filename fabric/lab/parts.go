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
	_    [64]byte
}

// fail ends the run, by an error at a host.
func (r *run) fail(host int, err error) {
	if p := &r.parts[r.net.PartOf(host)]; p.err == nil {
		p.err, p.at = err, Time(r.net.TimeOf(host))
	}
}

// settle counts what the parts have noted, while none of them runs.
func (r *run) settle() {
	var first *part
	for i := range r.parts {
		p := &r.parts[i]
		r.open -= len(p.over)
		r.under -= len(p.over)
		if r.s.Adapter.Shared {
			for _, f := range p.over {
				f.conn = nil
			}
		} else {
			r.closed = append(r.closed, p.over...)
		}
		clear(p.over)
		p.over = p.over[:0]
		if p.err != nil && (first == nil || p.at < first.at) {
			first = p
		}
	}
	if first != nil && r.err == nil {
		r.err = first.err
	}
	r.rings = slices.DeleteFunc(r.rings, (*collective).settle)
}

// untilReaped is between two times at which the receiving ends of connections
// are closed whose flows are over. The sending host knows when they are, and no
// other one knows it at the same moment.
const untilReaped = 10 * Microsecond

// reap has the receiving ends closed, again and again while there are flows
// with an end.
func (r *run) reap() {
	if r.reaps || r.s.Adapter.Shared {
		return
	}
	r.reaps = true
	r.net.At(r.net.Now()+event.Time(untilReaped), func() {
		r.settle()
		slices.SortFunc(r.closed, func(a, b *Flow) int {
			return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.number, b.number))
		})
		for _, f := range r.closed {
			f.conn.y.Close()
			f.conn = nil
		}
		clear(r.closed)
		r.closed = r.closed[:0]
		r.reaps = false
		if r.under > r.endless {
			r.reap()
		}
	})
}
