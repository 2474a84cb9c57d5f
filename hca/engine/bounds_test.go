package engine

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// A controller of the program's gets its bounds when the peer is known: towards
// a native peer it begins with what it was made with.
func TestBoundsOfGivenController(t *testing.T) {
	t.Parallel()
	const initial, most = 3 << 20, 8 << 20
	for _, native := range []bool{true, false} {
		w := newWorld(t, 1)
		a, b := w.newPair(Config{Window: qp.WindowConfig{MaxBytes: most}})
		q, err := a.e.CreateQP(qp.Config{PD: a.pd, SendCQ: a, RecvCQ: a, MaxSendWR: 1,
			Congestion: cc.NewWindow(cc.Config{InitialBytes: initial, MaxBytes: 2 * most})}, nil)
		w.must(err)
		qb := b.newQP()
		a.connect(q, ib.AddressVector{DGID: b.addr, Native: native}, qb.QPN())
		b.connect(qb, ib.AddressVector{DGID: a.addr, Native: native}, q.QPN())
		want := foreignBytes
		if native {
			want = initial
		}
		if got := qp.FlowOf(q.Core()).Window; got != want {
			t.Errorf("native %v: the window is %d bytes, want %d", native, got, want)
		}
	}
}
