package qp

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestCNPPace: marked data of the connection is answered with a CNP at once,
// once in 50 µs, and nothing else is (IBTA A17.9).
func TestCNPPace(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	p.b.delay = true
	marked := func(change func(*rocev2.Packet)) {
		pkt := packet(rocev2.RCSendOnly, 5) // after a gap
		pkt.BTH.DestQPN, pkt.BTH.PKey, pkt.Payload = p.b.QPN(), rocev2.DefaultPKey, make([]byte, 8)
		change(&pkt)
		p.b.handleMarked(p.now, p.a.addr, &pkt)
	}
	none := func(why string) {
		t.Helper()
		if p.b.Notices().Due() {
			t.Errorf("a CNP for %s", why)
		}
	}
	marked(func(p *rocev2.Packet) { p.BTH.DestQPN++ })
	none("a packet to another queue pair")
	marked(func(p *rocev2.Packet) { p.BTH.PKey = 1 })
	none("a packet of another partition")
	marked(func(p *rocev2.Packet) { p.BTH.Opcode = rocev2.UCSendOnly })
	none("a packet of another service")
	marked(func(p *rocev2.Packet) { p.BTH.Opcode, p.Payload = rocev2.RCAcknowledge, nil })
	none("an acknowledgement")
	marked(func(p *rocev2.Packet) { p.BTH.Opcode, p.Payload = rocev2.CNP, nil })
	none("a CNP")

	for _, after := range []time.Duration{0, 10 * time.Microsecond, 39 * time.Microsecond, time.Microsecond, time.Millisecond} {
		p.now = p.now.Add(after)
		marked(func(*rocev2.Packet) {})
		if p.b.Notices().Due() && p.b.Ready().Owes != OwesAnswers {
			t.Error("the CNP waits")
		}
		p.transfer(p.b, 1)
	}
	if n := p.b.Stats().CNPsSent; n != 3 {
		t.Errorf("%d CNPs, want 3", n)
	}
	if n := p.a.Stats().CNPsReceived; n != 3 || p.b.Stats().ECNMarked != 5 {
		t.Errorf("%d CNPs arrived, %d packets were marked", n, p.b.Stats().ECNMarked)
	}
	p.now = p.now.Add(time.Millisecond)
	marked(func(*rocev2.Packet) {})
	p.b.reset()
	none("a connection that has ended")
}

// TestCNPStates: a queue pair that can answer READs takes a CNP, and one from
// elsewhere has no effect (IBTA A17.9).
func TestCNPStates(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{noRTS: true})
	cnp := packet(rocev2.CNP, 0)
	cnp.BTH.DestQPN, cnp.BTH.PKey = p.b.QPN(), rocev2.DefaultPKey
	if d := p.b.handle(0, p.a.addr, &cnp); d != DropNone {
		t.Errorf("in RTR: %v", d)
	}
	if d := p.b.handle(0, p.b.addr, &cnp); d != DropPeer {
		t.Errorf("from elsewhere: %v", d)
	}
	cnp.BTH.DestQPN = p.a.QPN()
	if d := p.a.handle(0, p.b.addr, &cnp); d != DropNone {
		t.Errorf("in RTS: %v", d)
	}
	must(t, p.a.Modify(&ib.Attr{State: ib.StateErr}, ib.AttrState))
	if d := p.a.handle(0, p.b.addr, &cnp); d != DropState {
		t.Errorf("in ERR: %v", d)
	}
	if s := p.a.Stats(); s.CNPsReceived != 1 || s.WindowCuts != 1 {
		t.Errorf("%d CNPs, %d cuts", s.CNPsReceived, s.WindowCuts)
	}
}

// TestMarkedRead: the data of a READ that comes in marked makes the window of
// the side that asked for it smaller (IBTA A17.9).
func TestMarkedRead(t *testing.T) {
	t.Parallel()
	p := newPair(t, pairConfig{})
	must(t, p.a.PostSend(&ib.SendWR{Opcode: ib.OpRead, SGList: p.a.sge(0, 4000), Remote: p.b.remote(0)}))
	p.transfer(p.a, 1)
	before := p.a.halves.req.Snapshot().Limit.Bytes
	for p.transferMarked(p.b) {
	}
	if s := p.a.Stats(); s.SendDone != 1 || s.ECNMarked != 4 || s.WindowCuts != 1 || p.a.halves.req.Snapshot().Limit.Bytes > before/4*3+4096+PacketOverhead {
		t.Errorf("%d done, %d marked, %d cuts, window %d, was %d", s.SendDone, s.ECNMarked, s.WindowCuts, p.a.halves.req.Snapshot().Limit.Bytes, before)
	}
	p.transfer(p.a, 1)
	if n := p.b.Stats().CNPsReceived; n != 1 {
		t.Errorf("%d CNPs arrived", n)
	}
}

// transferMarked brings one packet to the other side, marked.
func (p *pair) transferMarked(from *testEnd) bool {
	n := from.poll(p.now, p.buf)
	if n == 0 {
		return false
	}
	must(p.t, p.pkt.Parse(p.buf[:n+rocev2.ICRCLen]))
	p.peer(from).handleMarked(p.now, from.addr, &p.pkt)
	return true
}

// TestCNPAllocations: marked packets and their CNPs cost no memory.
func TestCNPAllocations(t *testing.T) {
	p := newPair(t, pairConfig{noKeepCQ: true})
	wr := ib.SendWR{Opcode: ib.OpWrite, SGList: p.a.sge(0, 8), Remote: p.b.remote(0)}
	if n := testing.AllocsPerRun(100, func() {
		must(t, p.a.PostSend(&wr))
		p.transferMarked(p.a)
		p.transfer(p.b, 2)
		p.now = p.now.Add(DefaultNotifyInterval)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if p.a.Stats().CNPsReceived != 101 {
		t.Errorf("%d CNPs", p.a.Stats().CNPsReceived)
	}
}
