package engine

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// dscpClass has the upper three bits of the DSCP as the class, as switches do
// by default.
func dscpClass(trafficClass uint8) uint8 { return trafficClass >> 5 }

// classPair returns two hosts, the first with a connection of each of some
// traffic classes and a WRITE of n bytes on it. It sends nothing by itself.
func classPair(t *testing.T, n uint32, trafficClasses ...uint8) (a, b *host, qps []*QP) {
	t.Helper()
	w := newWorld(t, 1)
	w.delay = 0
	a, b = w.newPair(Config{Window: boundless, Class: dscpClass})
	for _, tc := range trafficClasses {
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, ib.AddressVector{DGID: b.addr, TrafficClass: tc}, qb.QPN())
		b.connect(qb, ib.AddressVector{DGID: a.addr, TrafficClass: tc}, qa.QPN())
		qps = append(qps, qa)
	}
	a.held = true
	for _, q := range qps {
		a.write(q, b, n)
	}
	return a, b, qps
}

// one takes a single packet of some classes and returns its class, -1 if there
// is none.
func (h *host) one(out *transport.TxBatch, classes Classes) int {
	out.Reset()
	h.e.Fill(h.w.now, out, classes)
	if out.Len() == 0 {
		return -1
	}
	_, path := out.Packet(0)
	return int(dscpClass(path.TrafficClass))
}

// A driver gets packets one by one, of the classes that it asks for; the others
// stay where they are.
func TestClasses(t *testing.T) {
	t.Parallel()
	a, _, _ := classPair(t, 3*1024, 26<<2, 0, 48<<2, 26<<2)
	out := transport.NewTxBatch(rocev2.MaxPacketLen)
	var got []int
	take := func(classes Classes) int { got = append(got, a.one(out, classes)); return got[len(got)-1] }
	if r := a.e.Classes(); r != 1<<3|1<<0|1<<6 {
		t.Errorf("ready %b", r)
	}
	for range 4 {
		take(1 << 3)
	}
	if r := a.e.Classes(); r != 1<<3|1<<0|1<<6 {
		t.Errorf("ready %b", r)
	}
	take(1 << 1) // no queue pair has this class
	take(1 << 0)
	take(AllClasses) // the highest
	take(AllClasses &^ (1 << 6))
	take(AllClasses &^ (1 << 6))
	take(AllClasses &^ (1 << 6)) // class 3 has had its six
	for a.e.Pending() {
		take(AllClasses)
	}
	want := []int{3, 3, 3, 3, -1, 0, 6, 3, 3, 0, 6, 6, 0}
	for len(got) > 0 && got[len(got)-1] < 0 { // the last look may find nothing
		got = got[:len(got)-1]
	}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	if r := a.e.Classes(); r != 0 {
		t.Errorf("ready %b at the end", r)
	}
}

// What a destroyed queue pair still has to send goes in its class, and a queue
// pair whose class changes while it waits for its turn goes in the new one.
func TestClassOfFinalPackets(t *testing.T) {
	t.Parallel()
	a, b, qps := classPair(t, 1024, 26<<2)
	b.held = true
	out := transport.NewTxBatch(rocev2.MaxPacketLen)
	a.held = false
	a.transmit()
	for b.w.step(b.w.now) {
	}
	var q *QP
	b.e.table.each(func(x *QP) { q = x })
	b.e.Destroy(q) // which has an acknowledgement to send
	if r := b.e.Classes(); r != 1<<3 {
		t.Errorf("ready %b", r)
	}
	if c := b.one(out, AllClasses&^(1<<3)); c != -1 || !b.e.Pending() {
		t.Errorf("a packet of class %d", c)
	}
	if c := b.one(out, 1<<3); c != 3 || b.e.Pending() {
		t.Errorf("class %d", c)
	}
	a.held = true
	a.write(qps[0], b, 1024)
	av := qps[0].Core().Attr().AV
	a.modify(qps[0], ib.Attr{State: ib.StateReset}, ib.AttrState)
	av.TrafficClass = 48 << 2
	a.connect(qps[0], av, 17)
	a.write(qps[0], b, 1024)
	if r := a.e.Classes(); r != 1<<6 {
		t.Errorf("ready %b after the class has changed", r)
	}
	if c := a.one(out, 1<<6); c != 6 {
		t.Errorf("class %d after it has changed", c)
	}
}
