package qp

import (
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
)

// persistentMemory is memory with a file after it, that fails on demand.
type persistentMemory struct {
	memreg.Memory
	n      int // how often it was brought there
	broken bool
}

func (m *persistentMemory) Persistent() bool { return true }

func (m *persistentMemory) Persist(off, n uint64) error {
	if m.broken {
		return errors.New("I/O error")
	}
	m.n++
	return nil
}

func addPersistent(t *testing.T, e *testEnd) *persistentMemory {
	t.Helper()
	m := &persistentMemory{Memory: memreg.Local(e.mem)}
	var err error
	e.mr, err = e.table.Register(e.pd, m, memreg.Options{Access: testAccess | ib.FlushPersistent, Base: memreg.BaseIOVA, IOVA: testIOVA})
	must(t, err)
	return m
}

func persistentFlush(p *pair, id uint64) *ib.SendWR {
	return &ib.SendWR{ID: id, Opcode: ib.OpFlush, Signaled: true, FlushType: rocev2.FlushPersistent, Length: 8, Remote: p.b.remote(0)}
}

// TestFlushLosses: a persistent FLUSH with each packet lost once is done when
// it completes, and an ATOMIC WRITE after it is executed after that, and once.
func TestFlushLosses(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		for lost := -1; lost < 8; lost++ {
			p := newPair(t, pairConfig{attr: ib.Attr{Access: testAccess | ib.FlushPersistent}})
			m := addPersistent(t, p.b)
			if own {
				p.a.SetReorder(NewPool(64))
				p.b.SetReorder(NewPool(64))
			}
			packets := 0
			p.drop = func(from *testEnd, pkt *rocev2.Packet) bool {
				if pkt.BTH.Opcode == rocev2.RCReadResponseOnly && m.n == 0 {
					t.Error("an answer before anything is persistent")
				}
				packets++
				return packets-1 == lost
			}
			must(t, p.b.mr.Store64(64, 1).Err())
			must(t, p.a.PostSend(&ib.SendWR{ID: 1, Opcode: ib.OpWrite, Signaled: true, SGList: p.a.sge(0, 3000), Remote: p.b.remote(1000)}))
			must(t, p.a.PostSend(persistentFlush(p, 2)))
			must(t, p.a.PostSend(&ib.SendWR{ID: 3, Opcode: ib.OpAtomicWrite, Signaled: true, Inline: []byte("12345678"), Remote: p.b.remote(64)}))
			p.settle()
			if got := p.a.sq.statuses(); got != "1 SUCCESS, 2 SUCCESS, 3 SUCCESS" || m.n != 1 {
				t.Errorf("lost %d, own kind %v: %q, persisted %d times", lost, own, got, m.n)
			}
			if string(p.b.mem[64:72]) != "12345678" {
				t.Errorf("lost %d: % x", lost, p.b.mem[64:72])
			}
		}
	}
}

// TestLateEndOfFlush: the end of a FLUSH of an earlier connection says nothing
// of one that is under way now, not even that it failed.
func TestLateEndOfFlush(t *testing.T) {
	t.Parallel()
	for _, fault := range []ib.Fault{ib.FaultNone, ib.FaultMemory} {
		p := newPair(t, pairConfig{attr: ib.Attr{Access: testAccess | ib.FlushPersistent, Timeout: 31}})
		addPersistent(t, p.b)
		var begun []Fetch
		p.late = func(_ *testEnd, f Fetch) bool { begun = append(begun, f); return true }
		must(t, p.a.PostSend(persistentFlush(p, 1)))
		p.run()
		a := p.a.Attr()
		a.SQPSN, a.RQPSN = 5, 5
		for _, e := range []*testEnd{p.a, p.b} {
			reset := a
			reset.State = ib.StateReset
			must(t, e.Modify(&reset, ib.AttrState))
		}
		p.connect(p.a, p.b, a, true)
		p.connect(p.b, p.a, a, true)
		must(t, p.a.PostSend(persistentFlush(p, 2)))
		p.run()
		if len(begun) != 2 {
			t.Fatalf("%d FLUSHes begun", len(begun))
		}
		begun[0].Fault = fault
		p.b.Fetched(p.now, begun[0])
		p.run()
		if got := p.a.sq.statuses(); got != "" {
			t.Errorf("the end of the first one: %q", got)
		}
		for range 2 {
			p.b.Fetched(p.now, begun[1])
			p.run()
		}
		if got := p.a.sq.statuses(); got != "2 SUCCESS" {
			t.Errorf("completions %q", got)
		}
	}
}

// TestFlushFails: storage that fails ends the connection with an error, and
// nothing after the FLUSH is executed.
func TestFlushFails(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{attr: ib.Attr{Access: testAccess | ib.FlushPersistent}})
	addPersistent(t, p.b).broken = true
	old := string(p.b.mem[64:72])
	must(t, p.a.PostSend(persistentFlush(p, 1)))
	must(t, p.a.PostSend(&ib.SendWR{ID: 2, Opcode: ib.OpAtomicWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(64)}))
	p.settle()
	if got := p.a.sq.statuses(); got != "1 REM_OP_ERR, 2 WR_FLUSH_ERR" {
		t.Errorf("completions %q", got)
	}
	if string(p.b.mem[64:72]) != old {
		t.Error("what is after the FLUSH was executed")
	}
}
