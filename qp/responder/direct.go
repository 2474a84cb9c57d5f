package responder

import (
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Place returns where the payloads of the next packets of the WRITE under way
// go, from the one of PSN psn on: whole packets, without the last one. Before
// that one, ahead packets were received and are not executed. The view is
// pinned unless there is nothing.
//
// The memory is the rest of the range of the WRITE, which is checked as a
// whole. Nothing of it was written before, because packets are executed in
// order, and all of it is written before the WRITE is complete.
func Place(r *Responder, psn rocev2.PSN, ahead int) memreg.View {
	if psn != r.epsn.Add(ahead) || r.message != rocev2.OpWrite || r.c.Attr.Access&ib.RemoteWrite == 0 ||
		busyOtherwise(r) {
		return memreg.View{}
	}
	left, skip := uint64(r.left), uint64(ahead)<<r.c.Shift
	if left <= skip {
		return memreg.View{}
	}
	v, f := r.c.Memory.Resolve(r.c.PD, r.c.QPN, r.rkey, r.va, left, ib.RemoteWrite)
	if f != ib.FaultNone {
		return memreg.View{}
	}
	n := (left - skip - 1) >> r.c.Shift << r.c.Shift
	if n == 0 || !v.Placeable() {
		v.Release()
		return memreg.View{}
	}
	return v.Part(skip, n)
}
