package verbs_test

import (
	"runtime"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// What connected queue pairs and completion queues take that do nothing: tens
// of thousands fit into one process.
func TestMemoryOfIdleQueuePairs(t *testing.T) { // not parallel: it measures the heap
	const n, mostQP, mostCQ = 256, 2250, 320
	a, b := verbstest.NewPair(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	before := verbstest.Heap()
	cqs := make([]*verbs.CQ, 0, 2*n)
	for range n {
		for _, s := range []*verbstest.Side{a, b} {
			cq, err := s.Dev.CreateCQ(512)
			must(err)
			cqs = append(cqs, cq)
		}
	}
	each := (verbstest.Heap() - before) / (2 * n)
	t.Logf("a completion queue takes %d bytes", each)
	if each > mostCQ {
		t.Errorf("a completion queue takes %d bytes, more than %d", each, mostCQ)
	}
	before = verbstest.Heap()
	qps := make([]*verbs.QP, 0, 2*n)
	for i := range n {
		for j, s := range []*verbstest.Side{a, b} {
			q, err := s.PD.CreateQP(verbs.QPConfig{SendCQ: cqs[2*i+j], RecvCQ: cqs[2*i+j], MaxInline: 256})
			must(err)
			qps = append(qps, q)
		}
		verbstest.Connect(t, qps[2*i], qps[2*i+1])
	}
	each = (verbstest.Heap() - before) / (2 * n)
	t.Logf("a connected queue pair takes %d bytes", each)
	if each > mostQP {
		t.Errorf("a connected queue pair takes %d bytes, more than %d", each, mostQP)
	}
	runtime.KeepAlive(qps)
	runtime.KeepAlive(cqs)
}
