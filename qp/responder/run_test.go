package responder

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// longEnd is an end in the middle of a SEND of which done bytes have come. Its
// receive is longer than any message.
func longEnd(t *testing.T, done uint32) *end {
	t.Helper()
	e := newEnd(t)
	e.r.Init(&e.c, Config{RecvCQ: discard{}, MaxRecvWR: 1, MaxRecvSGE: ib.MaxSGE})
	e.r.Resize(128)
	e.r.ReadyToReceive(16)
	mr, err := e.c.Memory.Register(e.c.PD, memreg.Local(make([]byte, ib.MaxMessage/ib.MaxSGE+4096)), memreg.Options{Access: ib.LocalWrite})
	if err != nil {
		t.Fatal(err)
	}
	wr := ib.RecvWR{}
	for range ib.MaxSGE {
		wr.SGList = append(wr.SGList, mr.All())
	}
	if err := e.r.Post(&wr); err != nil {
		t.Fatal(err)
	}
	if !e.r.exec.receives.Take() {
		t.Fatal("no receive")
	}
	e.r.exec.message, e.r.exec.done = rocev2.OpSend, done
	return e
}

// A run of a SEND ends where a message may not be longer, as its packets do
// (IBTA 9.7.7).
func TestLongestSend(t *testing.T) {
	t.Parallel()
	e := longEnd(t, ib.MaxMessage-3*256)
	v := e.r.Middle(rocev2.RCSendMiddle, e.r.answers.epsn, 8)
	v.Release()
	if v.Len() != 3*256 {
		t.Fatalf("memory of %d bytes, want 3 packets of 256", v.Len())
	}
	e.r.HandleRun(3)
	v = e.r.Middle(rocev2.RCSendMiddle, e.r.answers.epsn, 8)
	v.Release()
	if v.Len() != 0 {
		t.Errorf("memory of %d bytes after the longest message", v.Len())
	}
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendMiddle, PSN: e.r.answers.epsn}, Payload: make([]byte, 256)}
	info, _ := p.BTH.Opcode.Info()
	if d := e.r.HandleRequest(0, &conn.Arrival{Packet: &p}, info); d != conn.DropInvalid {
		t.Errorf("a packet more: %v", d)
	}
}

// There is no run while so many answers wait that requests are dropped, nor
// while a FLUSH is under way, which what writes waits for.
func TestNoRunWhileBusy(t *testing.T) {
	t.Parallel()
	for _, op := range []rocev2.Opcode{rocev2.RCSendMiddle, rocev2.RCWriteMiddle} {
		for name, busy := range map[string]func(r *Responder){
			"nothing": func(*Responder) {},
			"answers": func(r *Responder) {
				for !r.answers.queue.full() {
					r.answers.queue.push(response{kind: responseCanceled})
				}
			},
			"a FLUSH": func(r *Responder) { r.answers.flushing++ },
		} {
			e := longEnd(t, 256)
			if op == rocev2.RCWriteMiddle {
				e.r.exec.message, e.r.exec.va, e.r.exec.rkey, e.r.exec.left = rocev2.OpWrite, e.mr.Addr(), e.mr.RKey(), 1<<20
			}
			busy(&e.r)
			v := e.r.Middle(op, e.r.answers.epsn, 4)
			v.Release()
			if (v.Len() > 0) != (name == "nothing") {
				t.Errorf("%v while there is %s: memory of %d bytes", op, name, v.Len())
			}
		}
	}
}

// A run that begins with the packet that a NAK asked for ends the silence for
// the next gap.
func TestRunBehindNAK(t *testing.T) {
	t.Parallel()
	e := longEnd(t, 256)
	gap := func(ahead int) *rocev2.Packet {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendMiddle, PSN: e.r.answers.epsn.Add(ahead)}, Payload: make([]byte, 256)}
		info, _ := p.BTH.Opcode.Info()
		e.r.HandleRequest(0, &conn.Arrival{Packet: &p}, info)
		return e.poll()
	}
	for range 2 {
		if p := gap(5); p == nil || p.AETH.Syndrome != rocev2.NAKSequence || p.BTH.PSN != e.r.answers.epsn {
			t.Fatalf("the answer to a gap is %+v", p)
		}
		if p := gap(6); p != nil {
			t.Fatalf("the second answer to a gap is %+v", p)
		}
		v := e.r.Middle(rocev2.RCSendMiddle, e.r.answers.epsn, 4)
		v.Release()
		e.r.HandleRun(4)
	}
}
