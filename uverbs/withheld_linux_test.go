package uverbs

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// A program that moves bulk data, and waits, is told of completions a while
// later, and not never.
func TestToldOfBulkLater(t *testing.T) {
	t.Parallel()
	area, err := newArea(1<<12, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &bellRoom{}
	c := &Client{area: area, room: r}
	r.clients = append(r.clients, c)
	now := clock.Time(time.Second)
	begin := func() {
		r.attends.Store(true)
		c.bulk.posts(1 << 30)
		c.told(true)
		c.polls(now)
		area.waiting.Store(1)
		c.polls(now)
	}
	check := func(why string, waits bool) {
		t.Helper()
		if got := area.waiting.Load() != 0; got != waits {
			t.Errorf("%s: waits %v", why, got)
		}
	}
	begin()
	if area.bulk.Load() == 0 {
		t.Error("the program does not know that it moves bulk data")
	}
	c.told(true)
	c.polls(now)
	c.polls(now.Add(tellAfter))
	check("a completion has come just now", true)
	c.polls(now.Add(tellAfter + 1))
	check("it has come a while ago", false)

	begin()
	c.polls(now.Add(longestBulkWait))
	check("nothing has come", true)
	c.polls(now.Add(longestBulkWait + 1))
	check("nothing has come for long", false)

	begin()
	c.told(true)
	r.Attend(false)
	check("the daemon does other things", false)
	area.waiting.Store(1)
	c.told(true)
	check("the daemon does other things, and a completion comes", false)

	begin()
	c.told(false)
	check("what has come is short, or an error", false)

	begin()
	c.told(true)
	c.polls(now)
	c.bulk.sends.Store(restPosted)
	c.polls(now)
	check("there is not much behind it", false)

	begin()
	c.told(true)
	c.polls(now)
	c.bulk.sends.Store(0)
	c.polls(now)
	check("it was the last of the bulk", false)

	begin()
	for range 2 { // what is no bulk data makes it last no longer
		now = now.Add(bulkGap/2 + 1)
		c.told(false)
		c.polls(now)
	}
	if area.bulk.Load() != 0 || c.polls(now) {
		t.Error("a program whose bulk data does not go on rests for ever")
	}
	if err := area.close(); err != nil {
		t.Error(err)
	}
}

// A program moves no bulk data any more when its queue pair goes: whatever it
// has posted, nothing of that completes.
func TestBulkEndsWithQueuePair(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a *app, q *appQP){
		"RESET": func(_ *app, q *appQP) { q.modify(ib.AttrState, abi.ModifyQPReq{QpState: uint8(ib.StateReset)}) },
		"destroy": func(a *app, q *appQP) {
			ask[abi.DestroyQPResp](a, abi.DestroyQP, abi.DestroyQPReq{QpHandle: q.QpHandle})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			da, db := hosts(t)
			a, b := start(t, da), start(t, db)
			qa, qb := connected(ib.RC, a, b, a.newCQ(15), b.newCQ(15))
			qb.modify(ib.AttrState, abi.ModifyQPReq{QpState: uint8(ib.StateReset)}) // it does not answer
			for id := range uint64(10) {
				qa.post(fake.SendWR{ID: id, Opcode: fake.Write, SGE: []ib.SGE{a.sge(0, bulkMessage)}, Remote: b.addr(0), RKey: uint32(b.mr.Rkey)})
			}
			eventually(t, "the requests are not posted", func() bool { return a.c.bulk.sends.Load() == 10*bulkMessage })
			end(a, qa)
			if n := a.c.bulk.sends.Load(); n != 0 {
				t.Errorf("%d bytes are on their way", n)
			}
		})
	}
}

// Requests that are flushed are no bulk data, however long they are.
func TestFlushedAtOnce(t *testing.T) {
	t.Parallel()
	a, b := pair(t, pairOptions{depth: 63})
	b.p.must(b.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	var long atomic.Int32
	a.cq.config.Added = func(is bool) {
		if is {
			long.Add(1)
		}
	}
	a.p.must(a.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	var ids []uint64
	addr, rkey := b.p.remote(0)
	for id := range uint64(63) {
		ids = append(ids, id)
		a.post(fake.SendWR{ID: id, Opcode: fake.Write, SGE: []ib.SGE{a.p.sge(0, bulkMessage)}, Remote: addr, RKey: rkey})
	}
	a.cq.expect(ib.StatusWRFlushErr, ids...)
	if n := a.bulk.sends.Load(); long.Load() > 0 || n != 0 {
		t.Errorf("%d flushed requests may be withheld, and %d bytes are on their way", long.Load(), n)
	}
}
