package verbs_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/verbs"
)

// Nothing allocates between the post of a request and its completion. On one
// goroutine the whole way is counted: the packets pass inside the device.
func TestPostAndPollDoNotAllocate(t *testing.T) {
	link, other := fabric.Pair(addrA, addrB)
	defer other.Close()
	dev, err := verbs.OpenLink(link, verbs.Config{Loopback: true})
	check(t, err)
	defer dev.Close()
	a, b := newSide(t, dev, 64), newSide(t, dev, 64)
	connect(t, a.qp, b.qp)
	sge := []verbs.SGE{a.mr.Slice(0, 8)}
	sends := []verbs.SendWR{
		{ID: 1, Opcode: verbs.OpWrite, SGList: sge, Remote: b.mr.RemoteAt(0), Signaled: true},
		{ID: 2, Opcode: verbs.OpSend, Inline: []byte("x"), Signaled: true},
	}
	recv := []verbs.RecvWR{{ID: 3, SGList: []verbs.SGE{b.mr.Slice(0, 8)}}}
	var wc [4]verbs.WC
	once := func() {
		check(t, b.qp.PostRecv(recv...))
		check(t, a.qp.PostSend(sends...))
		for n := 0; n < len(sends); {
			n += a.cq.Poll(wc[:])
		}
		for b.cq.Poll(wc[:]) == 0 {
		}
	}
	for range 100 {
		once()
	}
	if n := testing.AllocsPerRun(100, once); n != 0 {
		t.Errorf("%v allocations for two requests and a receive", n)
	}
}
