package qp

import (
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestSQD: no new message begins in SQD, and the event comes when those under
// way have completed (IBTA 10.3.1).
func TestSQD(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	for i := range 3 {
		must(t, p.a.PostSend(&ib.SendWR{ID: uint64(i), Opcode: ib.OpWrite, SGList: p.a.sge(0, 3000), Remote: p.b.remote(0), Signaled: true}))
	}
	p.transfer(p.a, 1) // one packet of the first
	must(t, p.a.Modify(&ib.Attr{State: ib.StateSQD, EnableSQDNotify: true}, ib.AttrState|ib.AttrEnableSQDNotify))
	if err := p.a.Modify(&ib.Attr{State: ib.StateRTS}, ib.AttrState); err == nil {
		t.Error("left SQD in the middle of a message")
	}
	if _, ok := p.a.PollEvent(); ok {
		t.Error("an event before draining")
	}
	p.run()
	if got := p.a.sq.statuses(); got != "0 SUCCESS" {
		t.Errorf("drained: %q, want the started message only", got)
	}
	if e, _ := p.a.PollEvent(); e != ib.EventSQDrained {
		t.Errorf("event %v", e)
	}
	must(t, p.a.PostSend(&ib.SendWR{ID: 3, Opcode: ib.OpWrite, Signaled: true}))
	must(t, p.a.Modify(&ib.Attr{Timeout: 10, MaxDestRdAtomic: 16}, ib.AttrTimeout|ib.AttrMaxDestRdAtomic))
	p.run()
	must(t, p.a.Modify(&ib.Attr{State: ib.StateRTS}, ib.AttrState))
	p.run()
	if got := p.a.sq.statuses(); got != "1 SUCCESS, 2 SUCCESS, 3 SUCCESS" {
		t.Errorf("back in RTS: %q", got)
	}
}

// TestCommEst: the first request in RTR raises the event, once (IBTA 11.6.3).
func TestCommEst(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{noRTS: true})
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpWrite, Signaled: true}))
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, Signaled: true}))
	p.run()
	if p.a.Stats().SendDone != 2 {
		t.Error("a responder in RTR did not answer")
	}
	if e, _ := p.b.PollEvent(); e != ib.EventCommEstablished {
		t.Errorf("event %v", e)
	}
	if e, ok := p.b.PollEvent(); ok {
		t.Errorf("second event %v", e)
	}
}

// sharedSource hands out receives of no length.
type sharedSource struct {
	n  int
	cq CompletionSink
}

func (s *sharedSource) Next(w *Recv) bool {
	s.n--
	w.ID, w.SGList, w.CQ = uint64(s.n), w.SGList[:0], s.cq
	return s.n >= 0
}

// TestRecvSource: a shared queue hands out its receives in order and gives no
// credits (IBTA 10.2.9). In ERR an event says that no more will be taken (IBTA
// 11.6.3.1).
func TestRecvSource(t *testing.T) {
	t.Parallel()
	source := &sharedSource{n: 2}
	p := newPair(t, pairConfig{config: Config{RecvSource: source}})
	source.cq = p.b.rq
	for range 2 {
		must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpSend, Signaled: true}))
	}
	p.run()
	if got := p.b.rq.statuses(); got != "1 SUCCESS, 0 SUCCESS" {
		t.Errorf("receives %q", got)
	}
	if p.a.halves.req.Snapshot().Limited {
		t.Error("a shared queue gave credits")
	}
	must(t, p.b.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	if e, _ := p.b.PollEvent(); e != ib.EventLastWQEReached {
		t.Errorf("event %v", e)
	}
}

// TestReadGone: a region that goes while a READ is being answered. The NAK is
// remote access error, as for any wrong key (IBTA 9.7.4.1.5).
func TestReadGone(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: ib.OpRead, SGList: p.a.sge(0, 5000), Remote: p.b.remote(0)}))
	p.transfer(p.a, 1)
	p.transfer(p.b, 2)
	p.b.table.Deregister(p.b.mr)
	p.settle()
	if got := p.a.sq.statuses(); got != "1 REM_ACCESS_ERR" {
		t.Error(got)
	}
	if e, _ := p.b.PollEvent(); e != ib.EventQPAccessError {
		t.Error(e)
	}
}

// TestHuge: the longest READ at the smallest MTU is bounded to requests of 2^22
// packets. At most 2^23 PSNs are without an answer (IBTA 9.7.2).
func TestHuge(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{PathMTU: rocev2.MTU256}})
	huge := []ib.SGE{{Length: 1 << 31, LKey: 1}}
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: huge}))
	n := p.a.poll(0, p.buf)
	must(t, p.pkt.Parse(p.buf[:n+rocev2.ICRCLen]))
	if p.pkt.RETH.Length != 1<<30 {
		t.Errorf("asks for %d bytes", p.pkt.RETH.Length)
	}
	if rest := int(min(int64(1<<30+1<<22*PacketOverhead), math.MaxInt/2)); p.a.NextCost() != rest {
		t.Errorf("asks for %d bytes next, want %d: a half of 2^23 PSNs", p.a.NextCost(), rest)
	}
}
