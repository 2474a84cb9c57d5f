package verbs_test

import (
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// handled is a completion queue whose handler answers every receive by a SEND,
// from inside.
type handled struct {
	t      *testing.T
	cq     *verbs.CQ
	qp     *verbs.QP
	mr     *verbs.MR
	inside atomic.Int32
	recvs  atomic.Int32
	ended  chan struct{}
}

func newHandled(t *testing.T, dev *verbs.Device) *handled {
	t.Helper()
	h := &handled{t: t, ended: make(chan struct{})}
	pd, err := dev.AllocPD()
	if err == nil {
		h.mr, err = pd.RegisterMemory(make([]byte, 64), verbs.LocalWrite)
	}
	if err == nil {
		h.cq, err = dev.CreateCQ(64, verbs.WithHandler(h.handle))
	}
	if err == nil {
		h.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: h.cq, RecvCQ: h.cq})
	}
	if err == nil {
		err = h.qp.Init()
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 32 {
		h.receive()
	}
	return h
}

func (h *handled) receive() {
	if err := h.qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{h.mr.Slice(0, 64)}}); err != nil {
		h.t.Error(err)
	}
}

func (h *handled) handle(open bool) {
	if h.inside.Add(1) > 1 {
		h.t.Error("two calls of the handler overlap")
	}
	defer h.inside.Add(-1)
	if !open {
		close(h.ended)
		return
	}
	var wc [4]verbs.WC
	for n := h.cq.Poll(wc[:]); n > 0; n = h.cq.Poll(wc[:]) {
		for _, c := range wc[:n] {
			if err := c.Err(); err != nil {
				h.t.Error(err)
			}
			if c.Opcode != verbs.WCRecv {
				continue
			}
			h.recvs.Add(1)
			h.receive()
			if err := h.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("pong"), Signaled: true}); err != nil {
				h.t.Error(err)
			}
		}
	}
}

// A queue with a handler needs no goroutine of the program, and its handler may
// post. The other side waits as usual.
func TestHandler(t *testing.T) {
	t.Parallel()
	a, b := verbstest.NewPair(t)
	h := newHandled(t, b.Dev)
	qp, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
	if err != nil {
		t.Fatal(err)
	}
	verbstest.Connect(t, qp, h.qp)
	const rounds = 200
	for range rounds {
		if err := qp.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{a.MR.Slice(0, 64)}}); err != nil {
			t.Fatal(err)
		}
		if err := qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("ping"), Signaled: true}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := a.Next(t).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := h.recvs.Load(); n != rounds {
		t.Errorf("the handler saw %d receives of %d", n, rounds)
	}
	if err := b.Dev.Close(); err != nil {
		t.Error(err)
	}
	<-h.ended // Close has called it
}

// The functions of BeforeClose are called once, with everything open.
func TestBeforeClose(t *testing.T) {
	t.Parallel()
	a, _ := verbstest.NewPair(t)
	var order []string
	add := func(name string) func() {
		return a.Dev.BeforeClose(func() {
			if a.QP.State() != verbs.StateRTS {
				t.Errorf("%s: the queue pair is in %v", name, a.QP.State())
			}
			order = append(order, name)
		})
	}
	add("first")
	forget := add("second")
	add("third")
	forget()
	forget()
	a.Dev.Close()
	a.Dev.Close()
	if len(order) != 2 || order[0] != "third" || order[1] != "first" {
		t.Errorf("called: %v", order)
	}
}
