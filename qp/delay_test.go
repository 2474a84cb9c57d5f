package qp

import (
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// polled returns the opcodes that e has to send.
func (p *pair) polled(e *testEnd) []rocev2.Opcode {
	p.t.Helper()
	var ops []rocev2.Opcode
	for n := e.poll(p.now, p.buf); n > 0; n = e.poll(p.now, p.buf) {
		ops = append(ops, rocev2.Opcode(p.buf[0]))
	}
	return ops
}

// A lone acknowledgement waits as long as the driver wants, requests pass it,
// and nothing else waits. One acknowledgement stands for all that came
// meanwhile (IBTA 9.7.5.1.2).
func TestDelayedAcks(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	write := ib.SendWR{Opcode: ib.OpWrite, SGList: []ib.SGE{p.a.mr.SGE(0, 8)}, Remote: ib.RemoteAddr{Addr: testIOVA, RKey: p.b.mr.RKey()}}
	answer := write
	answer.SGList, answer.Remote.RKey = []ib.SGE{p.b.mr.SGE(0, 8)}, p.a.mr.RKey()
	post := func(e *testEnd, wr ib.SendWR) {
		t.Helper()
		if err := e.PostSend(&wr); err != nil {
			t.Fatal(err)
		}
	}
	want := func(why string, ops ...rocev2.Opcode) {
		t.Helper()
		got := p.polled(p.b)
		if len(got) != len(ops) {
			t.Fatalf("%s: %v, want %v", why, got, ops)
		}
		for i := range ops {
			if got[i] != ops[i] {
				t.Fatalf("%s: %v, want %v", why, got, ops)
			}
		}
	}
	p.b.delay = true
	post(p.a, write)
	p.transfer(p.a, 1)
	want("the acknowledgement waits")
	post(p.b, answer)
	want("a request passes it", rocev2.RCWriteOnly)
	if !p.b.ackDelayed() {
		t.Error("nothing is delayed any more")
	}
	post(p.a, write)
	p.transfer(p.a, 1)
	want("a second one joins it")
	p.b.delay = false
	want("one for both", rocev2.RCAcknowledge)
	if p.b.ackDelayed() {
		t.Error("something is still delayed")
	}

	p.b.delay = true
	read := write
	read.Opcode = ib.OpRead
	post(p.a, write)
	post(p.a, read)
	p.transfer(p.a, 2)
	want("with a READ after it, it goes", rocev2.RCAcknowledge, rocev2.RCReadResponseOnly)
	write.Remote.RKey ^= 1
	post(p.a, write)
	p.transfer(p.a, 1)
	want("a NAK does not wait", rocev2.RCAcknowledge)
}

// An acknowledgement does not wait where the peer can send nothing before it
// comes: it has used all receives that it knows of, and there are new ones
// (IBTA 9.7.7.2).
func TestDelayedAckBringsCredits(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.b.delay = true
	post := func(n int) {
		for range n {
			must(t, p.b.PostRecv(&ib.RecvWR{SGList: []ib.SGE{p.b.mr.SGE(0, 64)}}))
		}
	}
	send := func(op ib.Opcode) (acks int) {
		t.Helper()
		must(t, p.a.PostSend(&ib.SendWR{Opcode: op, SGList: []ib.SGE{p.a.mr.SGE(0, 8)}, Remote: ib.RemoteAddr{Addr: testIOVA, RKey: p.b.mr.RKey()}}))
		if p.transfer(p.a, 1) != 1 {
			t.Fatalf("%v is not sent: no credits", op)
		}
		for n := p.b.poll(p.now, p.buf); n > 0; n = p.b.poll(p.now, p.buf) {
			p.carry(p.b, p.buf, n)
			acks++
		}
		return acks
	}
	post(4)
	if send(ib.OpSend) != 1 {
		t.Error("the first acknowledgement, which says that there are 3 receives, waits")
	}
	for round := range 10 {
		for i := range 2 {
			post(1)
			if n := send(ib.OpSend); n != 0 {
				t.Errorf("round %d: %d acknowledgements after %d of 3 receives", round, n, i+1)
			}
		}
		post(1)
		if n := send(ib.OpSend); n != 1 {
			t.Errorf("round %d: %d acknowledgements when the peer had no credits left", round, n)
		}
	}
	for range 20 {
		if n := send(ib.OpWrite); n != 0 {
			t.Errorf("%d acknowledgements of a WRITE, which takes no receive", n)
		}
	}
	if n := p.a.Stats().CreditStalls; n != 0 {
		t.Errorf("%d times the peer had no credits", n)
	}
}

// A small request goes before the acknowledgement that leaves with it: of a
// segmented datagram only the last packet may be shorter. No second one does.
func TestSmallRequestLeadsAcknowledgement(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	for _, c := range []struct {
		why   string
		bytes int
		first bool
		want  []rocev2.Opcode
	}{
		{"small", 8, false, []rocev2.Opcode{rocev2.RCWriteOnly, rocev2.RCAcknowledge, rocev2.RCWriteOnly}},
		{"small, with the acknowledgement first", 8, true, []rocev2.Opcode{rocev2.RCAcknowledge, rocev2.RCWriteOnly, rocev2.RCWriteOnly}},
		{"long", 4096, false, []rocev2.Opcode{rocev2.RCAcknowledge}},
	} {
		p.b.first = c.first
		for _, e := range []*testEnd{p.a, p.b, p.b} {
			wr := ib.SendWR{Opcode: ib.OpWrite, SGList: e.sge(0, c.bytes), Remote: p.peer(e).remote(0)}
			if err := e.PostSend(&wr); err != nil {
				t.Fatal(err)
			}
			p.transfer(p.a, 100)
		}
		got := p.polled(p.b)
		if len(got) < len(c.want) || !slices.Equal(got[:len(c.want)], c.want) {
			t.Errorf("%s: %v, want %v first", c.why, got, c.want)
		}
		p.run()
	}
}
