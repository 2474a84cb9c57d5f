package qp

import (
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
)

// What a connected queue pair takes that is idle, and one that has proved once
// that its peer is there, as those of idle connections do.
func TestMemoryOfQueuePairs(t *testing.T) { // not parallel: it measures the heap
	const n, most, mostProved = 512, 1536, 1664
	p := newPair(t, pairConfig{})
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var scratch Scratch
	var pauses Pauses // an engine has those of each peer
	attr, before := p.a.Attr(), heap()
	qps := make([]*QP, n)
	for i := range qps {
		q, err := New(Config{QPN: 3, Memory: p.a.table, PD: p.a.pd, SendCQ: p.a.sq, RecvCQ: p.a.rq, Scratch: &scratch,
			MaxSendWR: 64, MaxRecvWR: 256, MaxSendSGE: 4, MaxRecvSGE: 1, MaxInline: 256})
		must(t, err)
		e := *p.a
		e.QP = q
		q.SharePauses(&pauses)
		p.connect(&e, p.b, attr, true)
		qps[i] = q
	}
	each := (heap() - before) / n
	t.Logf("an idle queue pair takes %d bytes", each)
	if each > most {
		t.Errorf("an idle queue pair takes %d bytes, more than %d", each, most)
	}
	for _, q := range qps {
		must(t, q.PostSend(&ib.SendWR{Opcode: ib.OpWrite}))
	}
	each = (heap() - before) / n
	t.Logf("with a request of 0 bytes %d", each)
	if each > mostProved {
		t.Errorf("with a request of 0 bytes it takes %d bytes, more than %d", each, mostProved)
	}
	runtime.KeepAlive(qps)
	runtime.KeepAlive(p)
}
