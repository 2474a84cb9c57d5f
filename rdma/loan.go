package rdma

import (
	"sync"
	"sync/atomic"
)

// loan is the right of the program to a buffer, which holds the memory of the
// hub. It is a value that programs copy: it ends once, whichever copy ends it,
// and the others are worth nothing then.
type loan struct {
	l    *lease
	turn uint64
}

// lease is what the copies of a loan share. It serves one loan after the other,
// and turn counts those that have ended: so loans allocate nothing.
type lease struct {
	turn atomic.Uint64
	buf  *buffer
}

var leases = sync.Pool{New: func() any { return new(lease) }}

// newLoan makes a loan of a buffer.
func newLoan(b *buffer) loan {
	b.hub.hold()
	l := leases.Get().(*lease)
	l.buf = b
	return loan{l, l.turn.Load()}
}

// good reports whether the loan has not ended.
func (o loan) good() bool { return o.l != nil && o.l.turn.Load() == o.turn }

// end ends the loan and returns its buffer, whose hub the caller lets go by
// unhold. It returns nil if the loan has ended before.
func (o loan) end() *buffer {
	if o.l == nil || !o.l.turn.CompareAndSwap(o.turn, o.turn+1) {
		return nil
	}
	b := o.l.buf
	o.l.buf = nil
	leases.Put(o.l)
	return b
}
