package qp

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
)

// ownSource is a receive queue that is kept outside the queue pair.
type ownSource struct {
	wrs     []ib.RecvWR
	pd      *memreg.PD
	refill  bool // for every receive that is taken another one comes
	cleared int
}

func (s *ownSource) Next(w *Recv) bool {
	if len(s.wrs) == 0 {
		return false
	}
	wr := s.wrs[0]
	s.wrs = s.wrs[1:]
	w.ID, w.PD, w.SGList = wr.ID, s.pd, append(w.SGList[:0], wr.SGList...)
	if s.refill {
		s.wrs = append(s.wrs, wr)
	}
	return true
}

func (s *ownSource) Clear() { s.wrs, s.cleared = nil, s.cleared+1 }

// newOwnSourcePair makes a pair whose b takes four receives of n bytes from a
// source of its own.
func newOwnSourcePair(t *testing.T, typ ib.QPType, n int) (*pair, *ownSource) {
	t.Helper()
	s := &ownSource{}
	var p *pair
	own := func(c *Config) { c.RecvSource, c.OwnSource, c.MaxRecvWR = s, true, 4 }
	if typ == ib.RC {
		c := Config{MaxSendWR: 16}
		own(&c)
		p = newPair(t, pairConfig{config: c})
	} else {
		p = newDatagramPair(t, typ, own)
	}
	s.pd = p.b.pd
	s.post(p, n, 1, 2, 3, 4)
	return p, s
}

func (s *ownSource) post(p *pair, n int, ids ...uint64) {
	for _, id := range ids {
		s.wrs = append(s.wrs, ib.RecvWR{ID: id, SGList: p.b.sge(0, n)})
	}
}

func toErr(t *testing.T, q *testEnd) {
	t.Helper()
	must(t, q.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
}

// TestOwnSource: a source that is the queue pair's own is flushed in order on
// the way to ERR (IBTA 10.3.1), the receive in hand first. What it gets in ERR
// is flushed when DrainReceives is called.
func TestOwnSource(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.RC, ib.UC, ib.UD} {
		p, s := newOwnSourcePair(t, typ, 2048)
		if err := p.b.PostRecv(&ib.RecvWR{}); !errors.Is(err, ib.ErrShared) {
			t.Errorf("%v: PostRecv: %v", typ, err)
		}
		must(t, p.a.PostSend(p.send(1, 100)))
		p.run()
		if typ != ib.UD { // whose messages have one packet
			must(t, p.a.PostSend(p.send(2, 2000)))
			p.transfer(p.a, 1)
		}
		DrainReceives(p.b.QP)
		if got := p.b.rq.statuses(); got != "1 SUCCESS" {
			t.Errorf("%v: received %q", typ, got)
		}
		toErr(t, p.b)
		want := "2 WR_FLUSH_ERR, 3 WR_FLUSH_ERR, 4 WR_FLUSH_ERR"
		if got := p.b.rq.statuses(); got != want {
			t.Errorf("%v: flushed %q, want %q", typ, got, want)
		}
		if e, ok := p.b.PollEvent(); ok && e == ib.EventLastWQEReached {
			t.Errorf("%v: event %v of a queue that is not shared", typ, e)
		}
		s.post(p, 0, 5, 6)
		DrainReceives(p.b.QP)
		if got := p.b.rq.statuses(); got != "5 WR_FLUSH_ERR, 6 WR_FLUSH_ERR" {
			t.Errorf("%v: flushed later: %q", typ, got)
		}
	}
}

// TestOwnSourceReset: RESET completes nothing and clears the source, and so
// does Close.
func TestOwnSourceReset(t *testing.T) {
	t.Parallel()
	for _, typ := range []ib.QPType{ib.RC, ib.UC, ib.UD} {
		p, s := newOwnSourcePair(t, typ, 2048)
		must(t, p.b.Modify(&ib.Attr{State: ib.StateReset}, ib.AttrState))
		if s.cleared != 1 || len(s.wrs) != 0 || len(p.b.rq.wcs) != 0 {
			t.Errorf("%v: cleared %d times, %d receives left, completions %q", typ, s.cleared, len(s.wrs), p.b.rq.statuses())
		}
		p.b.Close()
		if s.cleared != 2 {
			t.Errorf("%v: Close did not clear the source", typ)
		}
		DrainReceives(p.b.QP)
	}
}

// TestOwnSourceFlushesFew: the owner of the source determines how many receives
// there are. The way to ERR flushes few of them, and so does each call that
// follows; all calls together flush all, in order.
func TestOwnSourceFlushesFew(t *testing.T) {
	t.Parallel()
	const few, all = 64, 200
	for _, typ := range []ib.QPType{ib.RC, ib.UC, ib.UD} {
		p, s := newOwnSourcePair(t, typ, 0)
		for id := uint64(len(s.wrs) + 1); id <= all; id++ {
			s.post(p, 0, id)
		}
		if toErr(t, p.b); len(p.b.rq.wcs) != few {
			t.Errorf("%v: ERR flushes %d", typ, len(p.b.rq.wcs))
		}
		for calls := 2; len(p.b.rq.wcs) < all; calls++ {
			if more, n := DrainReceives(p.b.QP), len(p.b.rq.wcs); n != min(calls*few, all) || more != (n < all) {
				t.Fatalf("%v: %d calls have flushed %d, more %v", typ, calls, n, more)
			}
		}
		for i, wc := range p.b.rq.wcs {
			if wc.ID != uint64(i+1) || wc.Status != ib.StatusWRFlushErr {
				t.Fatalf("%v: completion %d: %+v", typ, i, wc)
			}
		}
	}
}

// TestOwnSourceRefilled: receives that are added while others are flushed do
// not keep the queue pair from ending.
func TestOwnSourceRefilled(t *testing.T) {
	t.Parallel()
	p, s := newOwnSourcePair(t, ib.RC, 0)
	s.refill = true
	if toErr(t, p.b); p.b.State() != ib.StateErr {
		t.Errorf("it is in %v", p.b.State())
	}
	if more := DrainReceives(p.b.QP); !more || len(p.b.rq.wcs) != 128 {
		t.Errorf("flushed %d, more %v", len(p.b.rq.wcs), more)
	}
}

// TestOwnSourceIsGiven: OwnSource says something of a source.
func TestOwnSourceIsGiven(t *testing.T) {
	t.Parallel()
	cq := &testCQ{}
	table := memreg.NewTable(func() uint32 { return 1 })
	c := Config{QPN: 7, Memory: table, PD: table.AllocPD(), SendCQ: cq, RecvCQ: cq, OwnSource: true}
	if _, err := New(c); !errors.Is(err, ErrConfig) {
		t.Errorf("no source: %v", err)
	}
}
