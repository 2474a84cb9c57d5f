package hca

import (
	"slices"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// QPNs returns the numbers of all open queue pairs, in ascending order. It
// holds the lock of a shard for some 10 ns for each.
func (d *Device) QPNs() []rocev2.QPN {
	var list []rocev2.QPN
	for _, s := range d.shards {
		s.lock()
		list = s.eng.AppendQPNs(list)
		s.unlock()
	}
	slices.Sort(list)
	return list
}

// Flow returns how sending stands.
func (q *QP) Flow() qp.Flow {
	q.shard.lock()
	defer q.shard.unlock()
	return qp.FlowOf(q.core.Core())
}
