package qp

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/requester"
	"github.com/gosoftroce/rocev2/qp/responder"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Each part alone, without a queue pair.

type anyCQ struct{ got []ib.Status }

func (q *anyCQ) Complete(wc *ib.WC) bool {
	q.got = append(q.got, wc.Status)
	return true
}

// newHalves returns both halves of RC in RTS, which post to one completion
// queue.
func newHalves(t *testing.T) (*Halves, *anyCQ) {
	t.Helper()
	table, cq := memreg.NewTable(func() uint32 { return 7 }), new(anyCQ)
	c := &conn.Conn{QPN: 5, State: ib.StateRTS, Memory: table, PD: table.AllocPD(), Scratch: new(Scratch)}
	c.Attr.DestQPN, c.Attr.MaxRdAtomic, c.Attr.MaxDestRdAtomic = 6, 1, 1
	c.SetMTU(rocev2.MTU1024)
	h := &Halves{c: c, typ: ib.RC, service: rocev2.ServiceRC, req: new(requester.Requester), resp: new(responder.Responder)}
	h.req.Init(c, requester.Config{MaxSendWR: 4, MaxSendSGE: 1, MaxInline: 64, SendCQ: cq, Controller: cc.NewWindow(cc.Config{})})
	h.resp.Init(c, responder.Config{RecvCQ: cq, MaxRecvWR: 4, MaxRecvSGE: 1})
	h.resp.Resize(1)
	h.resp.ReadyToReceive(10)
	h.req.ReadyToReceive()
	h.req.ReadyToSend(20)
	return h, cq
}

// request is a SEND without payload that asks for an acknowledgement.
func (h *Halves) request(psn rocev2.PSN) Drop {
	p := &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: 5, PSN: psn, AckReq: true}}
	info, _ := p.BTH.Opcode.Info()
	return h.handle(1, &Arrival{Packet: p}, info)
}

// TestHalvesLead: a small request goes before a lone acknowledgement, once,
// unless acknowledgements go first.
func TestHalvesLead(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		h, _ := newHalves(t)
		must(t, h.resp.Post(&ib.RecvWR{}))
		must(t, h.req.Post(&ib.SendWR{Opcode: ib.OpSend, Inline: []byte{1}}))
		if d := h.request(10); d != DropNone {
			t.Fatal(d)
		}
		var p Polled
		w := &trainList{}
		out := conn.NewOutput(w, 8)
		h.poll(1, Limit{Packets: 8, Bytes: 1 << 20, AckFirst: first}, &out, &p)
		if out.Packets != 2 || p.Bytes == 0 || h.led {
			t.Errorf("first=%v: %d packets, %+v, led %v", first, out.Packets, p, h.led)
		}
		want := []rocev2.Opcode{rocev2.RCSendOnly, rocev2.RCAcknowledge}
		if first {
			want[0], want[1] = want[1], want[0]
		}
		for i, op := range want {
			if got := rocev2.Opcode(w.bufs[i][0]); got != op {
				t.Errorf("first=%v: packet %d is %v, want %v", first, i, got, op)
			}
		}
	}
}

// TestHalvesEnd: when a half ends the connection, the sends are flushed and
// then the receives, once.
func TestHalvesEnd(t *testing.T) {
	t.Parallel()
	h, cq := newHalves(t)
	must(t, h.resp.Post(&ib.RecvWR{}))
	must(t, h.req.Post(&ib.SendWR{Opcode: ib.OpSend}))
	h.flush()
	if len(cq.got) != 0 {
		t.Error("flushed without an end")
	}
	h.c.Fail(conn.EndLocal)
	for range 2 {
		if h.flush(); len(cq.got) != 2 || cq.got[0] != ib.StatusWRFlushErr || cq.got[1] != ib.StatusWRFlushErr {
			t.Errorf("completions %v", cq.got)
		}
	}
	if h.sends() || h.idle() {
		t.Error("in ERR it sends, or is idle")
	}
}

// TestHalvesAbsent: what is for a half that is not there is refused.
func TestHalvesAbsent(t *testing.T) {
	t.Parallel()
	h, _ := newHalves(t)
	info, _ := rocev2.RCAcknowledge.Info()
	ack := &Arrival{Packet: &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge}}}
	only := *h
	if only.req = nil; only.handle(1, ack, info) != DropService || only.sends() {
		t.Error("an XRC target takes responses")
	}
	only = *h
	if only.resp = nil; only.request(10) != DropService || only.PollFinal(make([]byte, 64)) != 0 {
		t.Error("an XRC initiator takes requests")
	}
	if n, _, _ := only.Receipt(make([]byte, 64)); n != 0 || only.Held() != 0 {
		t.Error("it has answers")
	}
}

// TestNoticesAlone: a marked packet with data gets a notification, the next
// only after the interval; and with NotifyHold then even if no further packet
// is marked.
func TestNoticesAlone(t *testing.T) {
	t.Parallel()
	h, _ := newHalves(t)
	n := makeNotices(&Config{NotifyInterval: 1000, NotifyHold: true})
	p := &rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly}, Payload: make([]byte, 8)}
	buf := make([]byte, 64)
	n.marked(h, 1, p, DropQPN)
	if n.Due() || n.poll(h.c, buf) != 0 {
		t.Error("for a packet of another queue pair")
	}
	n.marked(h, 1, p, DropNone)
	if !n.Due() || n.poll(h.c, buf) != rocev2.BTHLen+16 || n.Due() {
		t.Error("none, or more than one")
	}
	n.marked(h, 500, p, DropNone)
	if n.unmarked(h.req, 600); n.Due() {
		t.Error("too early")
	}
	if n.unmarked(h.req, 1001); !n.Due() {
		t.Error("the mark that was held is lost")
	}
	h.c.Fail(conn.EndLocal)
	n.forget()
	if n.marked(h, 5000, p, DropNone); n.Due() || h.c.Stats.Stats().ECNMarked != 2 {
		t.Errorf("after the end; %d marks are counted", h.c.Stats.Stats().ECNMarked)
	}
}
