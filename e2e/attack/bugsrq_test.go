package attack

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/verbs"
)

// srqConn connects a queue pair of the victim, which takes its receives from a
// shared queue, to h.
func (t *Trial) srqConn(h *hostile, s *verbs.SRQ) *foe {
	e := t.lab.end(t.lab.victim, endConfig{})
	check(e.qp.Close())
	var err error
	e.qp, err = t.lab.victim.pd.CreateQP(verbs.QPConfig{SendCQ: e.scq, RecvCQ: e.rcq, SRQ: s})
	check(err)
	check(e.qp.Connect(t.lab.ctx, verbs.Endpoint{Addr: h.link.Addr(), QPN: 0x77, PSN: 7}, verbs.WithMTU(verbs.MTU1024)))
	return &foe{hostile: h, end: e, qpn: 0x77, psn: e.expects()}
}

// A resize of a shared receive queue that failed freed the queue that was in
// use, or lost what was in it. Here nothing changes, while messages come.
func TestSRQResizeThatFails(t *testing.T) {
	bugClass(t, func(t *Trial) {
		const depth = 16
		h := t.lab.hostile(true)
		mr, err := t.lab.victim.pd.AllocMemory(4096, verbs.LocalWrite)
		check(err)
		s, err := t.lab.victim.pd.CreateSRQ(verbs.SRQConfig{MaxWR: depth, MaxSGE: 1})
		check(err)
		for i := range depth {
			check(s.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{mr.Slice(i*slotSize, slotSize)}}))
		}
		f := t.srqConn(h, s)
		for i := range depth {
			for _, n := range []int{-1, 0, depth - i - 1, 1 << 30} {
				var bad *verbs.RangeError
				if n == 0 && i == depth {
					continue
				}
				err := s.Resize(n)
				t.must(errors.As(err, &bad), "a resize to %d with %d receives in the queue: %v", n, depth-i, err)
			}
			a := s.Query()
			t.must(a.MaxWR == depth && a.Posted == depth-i, "after resizes that failed: %+v", a)
			check(f.send(f.packet(rocev2.RCSendOnly, i, payload(forged))))
			wc, err := t.lab.wait(f.end.rcq)
			check(err)
			t.must(wc.ID == uint64(i) && wc.Status == verbs.StatusSuccess, "message %d: completion %+v", i, wc)
			t.must(bytes.Equal(mr.Bytes()[i*slotSize:(i+1)*slotSize], forged), "message %d: other data", i)
		}
		check(s.Resize(1))
		t.must(errors.Is(s.Close(), verbs.ErrInUse), "a queue that a queue pair takes from was closed")
		check(f.end.qp.Close())
		check(s.Close())
	})
}

// A peer that begins messages and never ends them holds one receive of a shared
// queue for each of its connections, and no more.
func TestSRQIsNotDrainedByHalfMessages(t *testing.T) {
	bugClass(t, func(t *Trial) {
		const depth = 8
		h := t.lab.hostile(true)
		mr, err := t.lab.victim.pd.AllocMemory(1<<16, verbs.LocalWrite)
		check(err)
		s, err := t.lab.victim.pd.CreateSRQ(verbs.SRQConfig{MaxWR: depth, MaxSGE: 1})
		check(err)
		for i := range depth {
			check(s.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{mr.Slice(i*4096, 4096)}}))
		}
		f := t.srqConn(h, s)
		full := bytes.Repeat([]byte{0xee}, f.end.mtu.Bytes())
		first := f.packet(rocev2.RCSendFirst, 0, payload(full))
		for range 100 {
			check(f.send(first, f.packet(rocev2.RCSendFirst, 2, payload(full))))
		}
		t.lab.fence()
		t.must(s.Query().Posted == depth-1, "%d of %d receives are left", s.Query().Posted, depth)
		t.must(f.end.qp.State() == verbs.StateRTS, "state %v", f.end.qp.State())
		check(f.end.qp.Modify(&verbs.Attr{State: verbs.StateErr}, verbs.AttrState))
		wc, err := t.lab.wait(f.end.rcq)
		check(err)
		t.must(wc.ID == 0 && wc.Status == verbs.StatusWRFlushErr, "the receive in hand: %+v", wc)
	})
}
