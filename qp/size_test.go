package qp

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/qp/responder"
)

// TestIdleSize bounds the memory of a connected queue pair beyond its send and
// receive queues: 4 KiB with 16 outstanding READs, which take 40 bytes each,
// and 64 answers of 24 bytes.
func TestIdleSize(t *testing.T) {
	t.Parallel()
	own := unsafe.Sizeof(QP{}) + unsafe.Sizeof(requester.Requester{}) + unsafe.Sizeof(responder.Responder{})
	size := own + unsafe.Sizeof(cc.Window{}) + 16*40 + 64*24
	if size > 4096 {
		t.Errorf("%d bytes with 16 outstanding READs, want at most 4096", size)
	}
	t.Logf("%d bytes, %d of them the queue pair itself", size, own)
}

// TestClosedRefersToNothing: a closed queue pair holds no queue, sink or
// domain. It is in RESET and keeps its number and counters.
func TestClosedRefersToNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 1<<14), Remote: p.b.remote(0)}))
	p.run()
	q := p.a.QP
	want := QP{halves: Halves{typ: q.halves.typ, service: q.halves.service}, conn: conn.Conn{QPN: q.conn.QPN, Stats: q.conn.Stats}}
	if q.Close(); !reflect.DeepEqual(*q, want) || q.State() != ib.StateReset || q.Stats().SendDone != 1 {
		t.Errorf("a closed queue pair is %+v", q)
	}
}
