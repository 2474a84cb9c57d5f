package cm_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// What an idle connection takes on each side, its queue pair included. In
// virtual time: a machine that is busy has packets sent again, and counts them.
// They are many, because a device that has sent twice at once keeps a second
// batch, of 160 KiB.
func TestMemoryOfIdleConnections(t *testing.T) { // not parallel: it measures the heap
	synctest.Test(t, testMemoryOfIdleConnections)
}

func testMemoryOfIdleConnections(t *testing.T) {
	const n, most = 1024, 2950
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{})
	ctx := client.context()
	qp := func(h *host) *verbs.QP {
		q, err := h.pd.CreateQP(verbs.QPConfig{SendCQ: h.cq, RecvCQ: h.cq})
		must(t, err)
		return q
	}
	var conns []*cm.Conn
	dial := func() {
		accepted := make(chan *cm.Conn)
		go func() {
			defer close(accepted)
			if r, err := l.Accept(ctx); err == nil {
				c, _ := r.Accept(ctx, qp(server), cm.AcceptConfig{})
				accepted <- c
			}
		}()
		a, err := cm.Dial(ctx, qp(client), addr, cm.DialConfig{})
		must(t, err)
		b := <-accepted
		if b == nil {
			t.Fatal("not accepted")
		}
		conns = append(conns, a, b)
	}
	dial() // the first makes what all share
	before := verbstest.Heap()
	for range n {
		dial()
	}
	each := (verbstest.Heap() - before) / (2 * n)
	t.Logf("an idle connection takes %d bytes", each)
	if each > most {
		t.Errorf("an idle connection takes %d bytes, more than %d", each, most)
	}
	runtime.KeepAlive(conns)
}

// What the manager of a device without connections takes: each program has it
// that opens a device.
func TestMemoryOfAnIdleManager(t *testing.T) { // not parallel: it measures the heap
	const n, most = 8, 1350 << 10 // 1280 of which nothing is touched
	var addrs []string
	for i := range n {
		addrs = append(addrs, fmt.Sprintf("192.0.2.%d", i+1))
	}
	hosts := network(t, fabric.Config{}, addrs...)
	before := verbstest.Heap()
	for _, h := range hosts {
		must(t, cm.Start(h.dev))
	}
	each := (verbstest.Heap() - before) / n
	t.Logf("an idle manager takes %d KiB", each>>10)
	if each > most {
		t.Errorf("an idle manager takes %d bytes, more than %d", each, most)
	}
	runtime.KeepAlive(hosts)
}
