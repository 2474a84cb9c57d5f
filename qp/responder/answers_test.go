package responder

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestResponses: acknowledgements that wait become one, but never across the
// answer to a READ or an atomic (IBTA 9.7.5.1).
func TestResponses(t *testing.T) {
	t.Parallel()
	var r responses
	r.resize(1) // room for 8
	r.ack(1, 1)
	if r.ack(2, 2) != 1 || r.tail != 1 || r.at(0).psn != 2 || r.at(0).msn != 2 {
		t.Error("acknowledgements do not merge into the latest")
	}
	r.ack(1, 2)
	if r.at(0).psn != 2 {
		t.Error("an acknowledgement went backwards")
	}
	r.push(response{kind: responseRead, res: 3, psn: 3, left: 1})
	r.ack(4, 4)
	if r.tail != 3 || r.at(0).psn != 2 || r.at(2).psn != 4 {
		t.Error("an acknowledgement merged across a READ")
	}
	r.move(3, 5)
	r.cancel(3)
	if e := r.at(1); e.kind != responseRead || e.res != 5 {
		t.Error("the answer of a resource did not move to another one")
	}
	if !r.nak(rocev2.NAKSequence, 5, 4) || r.nak(rocev2.NAKSequence, 5, 4) {
		t.Error("the same NAK waits twice")
	}
	r.ack(6, 5)
	if e := r.at(r.tail - 1); r.tail != 3 || e.kind != responseAck || e.psn != 6 {
		t.Error("a NAK for what has arrived is still sent")
	}
	for !r.full() {
		r.push(response{kind: responseAtomic})
	}
	if r.nak(rocev2.NAKSequence, 9, 9) {
		t.Error("a full queue took a NAK")
	}
	r.resize(16)
	if r.full() || r.at(0).psn != 2 {
		t.Error("resizing lost answers")
	}
}

// TestResources: the ring has the last READs and atomics, to answer them again
// (IBTA 9.7.5.1.6).
func TestResources(t *testing.T) {
	t.Parallel()
	var r resources
	r.resize(3)
	if r.ring != nil {
		t.Error("memory is taken before it is needed")
	}
	if r.oldest(); len(r.ring) != 4 {
		t.Fatalf("%d resources for a depth of 3, want 4", len(r.ring))
	}
	put := func(first rocev2.PSN, psns uint32) {
		e, _ := r.oldest()
		*e = resource{kind: resourceRead, first: first, psns: psns}
		r.next++
	}
	put(0xfffffe, 5) // to 2
	put(10, 1)
	if e, i := r.find(1); e == nil || i != 0 || e.first != 0xfffffe {
		t.Error("a PSN inside a READ across the wrap is not found")
	}
	if e, _ := r.find(3); e != nil {
		t.Error("found beyond the end")
	}
	if got := r.ackLimit(5, 20); got != 9 {
		t.Errorf("an acknowledgement for 5 to 20 goes to %d, want 9: the READ is at 10", got)
	}
	if got := r.ackLimit(11, 20); got != 20 {
		t.Errorf("an acknowledgement after the READ goes to %d", got)
	}
	put(30, 1)
	put(40, 1)
	put(50, 1)
	if e, _ := r.find(1); e != nil {
		t.Error("the oldest was not overwritten")
	}
	r.resize(2)
	if e, _ := r.find(50); e == nil || len(r.ring) != 2 {
		t.Error("shrinking lost the newest")
	}
	r.resize(8)
	if e, _ := r.find(40); e == nil {
		t.Error("growing lost an entry")
	}
	put(60, 1)
	if e, _ := r.find(40); e == nil {
		t.Error("after growing a new entry took an old one's place")
	}
}

// TestResponseOrder: the answer to a duplicate goes before answers with later
// PSNs, across the wrap too (IBTA 9.7.5.1.5).
func TestResponseOrder(t *testing.T) {
	t.Parallel()
	var r responses
	r.resize(2)
	r.ack(0xfffffd, 1)
	r.push(response{kind: responseRead, res: 1, psn: 3, msn: 2})
	r.insert(response{kind: responseRead, res: 0, psn: 0xfffffe, msn: 5})
	r.insert(response{kind: responseAtomic, res: 2, psn: 9, msn: 5})
	for i, want := range []rocev2.PSN{0xfffffd, 0xfffffe, 3, 9} {
		if got := r.at(uint32(i)).psn; got != want {
			t.Errorf("answer %d has PSN %d, want %d", i, got, want)
		}
	}
	msns := func() (s string) {
		for i := r.head; i != r.tail; i++ {
			s += fmt.Sprint(r.at(i).msn, " ")
		}
		return s
	}
	r.insert(response{kind: responseRead, res: 3, psn: 2, msn: 7})
	if got := msns(); got != "1 5 7 7 7 " {
		t.Errorf("MSNs %s: they go back, or change before the inserted", got)
	}
	r.rewind(r.at(1), 0xfffffc, 8)
	if got := msns(); got != "1 8 8 8 8 " {
		t.Errorf("MSNs %s after going back", got)
	}
}

// TestLargestRead: the longest message at the smallest MTU takes half of all
// PSNs, and all of it can be asked for again (IBTA 9.7.2).
func TestLargestRead(t *testing.T) {
	t.Parallel()
	a := answers{c: &conn.Conn{}}
	a.res.resize(4)
	a.queue.resize(4)
	for _, first := range []rocev2.PSN{0, 1, 1<<20 - 1, 0xfffffe} {
		a.epsn = first
		if a.busy() || crossesAge(a.epsn, 1<<23) && !a.age(1<<23) {
			t.Fatalf("at %v: refused", first)
		}
		e, _ := a.reserve(1 << 23)
		e.kind, e.pending = resourceRead, pendingNone
		for _, at := range []int{0, 1, 1 << 22, 1<<23 - 1} {
			if e, _ := a.res.find(first.Add(at)); e == nil || e.first != first {
				t.Errorf("READ at %v: PSN number %d is not found", first, at)
			}
		}
		for range 1 << 10 { // goes on after it by 2^21
			if crossesAge(a.epsn, 1<<11) && !a.age(1<<11) {
				t.Fatal("refused")
			}
			a.epsn = a.epsn.Add(1 << 11)
		}
		if e, _ := a.res.find(first.Add(1<<23 - 1)); e == nil {
			t.Errorf("READ at %v: its end was forgotten early", first)
		}
		for range 1 << 12 {
			if crossesAge(a.epsn, 1<<11) && !a.age(1<<11) {
				t.Fatal("refused")
			}
			a.epsn = a.epsn.Add(1 << 11)
		}
		if e, _ := a.res.find(first.Add(1)); e != nil {
			t.Errorf("READ at %v: not forgotten when its PSNs come again", first)
		}
	}
}
