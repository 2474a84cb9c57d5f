package cm_test

import (
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// What an idle connection takes on each side, its queue pair included.
func TestMemoryOfIdleConnections(t *testing.T) { // not parallel: it measures the heap
	const n, most = 512, 2950
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
