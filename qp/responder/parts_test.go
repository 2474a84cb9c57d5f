package responder

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Each part alone, without a Responder.

func request(op rocev2.Opcode, psn rocev2.PSN, n int) (*rocev2.Packet, *rocev2.OpcodeInfo) {
	info, _ := op.Info()
	return &rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PSN: psn}, Payload: make([]byte, n)}, info
}

// TestGapAlone: a gap is asked for once, again when the peer went back and the
// packet was lost again, and at most five times in a millisecond.
func TestGapAlone(t *testing.T) {
	t.Parallel()
	g := gap{c: &conn.Conn{State: ib.StateRTS, MTU: 256, Shift: 8}}
	const expected = 0xffffff
	take := func(now clock.Time, ahead int) bool {
		p, _ := request(rocev2.RCWriteOnly, rocev2.PSN(expected).Add(ahead), 8)
		d, ask := g.take(now, p, 1, expected)
		if d != conn.DropOutOfOrder {
			t.Fatalf("%v: the peer is not native", d)
		}
		return ask && g.asks(now, expected, p.BTH.PSN)
	}
	if !take(1, 2) || take(1, 3) || take(1, 4) {
		t.Error("a gap is not asked for, or more than once")
	}
	if !take(1, 2) || !take(1, 1) {
		t.Error("the peer went back, and is not asked again")
	}
	for range 2 {
		take(1, 1)
	}
	if take(1, 1) || !take(1+nakPeriod, 1) {
		t.Error("the NAKs are not bounded in a period, or after it")
	}
	g.silence()
	if take(2+2*nakPeriod, 1) {
		t.Error("asked for although the peer sends everything again")
	}
	if g.close(); !take(2+2*nakPeriod, 1) {
		t.Error("the next gap is not asked for")
	}
}

// TestGapKeeps: of a native peer it gives back what was kept in order, without
// what was executed meanwhile, and says whether there is another gap.
func TestGapKeeps(t *testing.T) {
	t.Parallel()
	g := gap{c: &conn.Conn{State: ib.StateRTS, MTU: 256, Shift: 8, Pool: queue.NewPool(64)}}
	for _, psn := range []rocev2.PSN{11, 12, 14} {
		p, _ := request(rocev2.RCWriteOnly, psn, 8)
		if d, _ := g.take(1, p, 1, 10); d != conn.DropNone {
			t.Fatalf("PSN %v: %v", psn, d)
		}
	}
	if _, more := g.next(10); more {
		t.Error("there is something although the expected packet is missing")
	}
	if p, more := g.next(12); p != nil || !more {
		t.Errorf("%v, %v: 11 was executed meanwhile", p, more)
	}
	g.pop()
	if p, _ := g.next(12); p == nil || p.BTH.PSN != 12 {
		t.Errorf("%+v, not 12", p)
	}
	g.pop()
	g.close()
	if first, ask := g.settle(true, 13); first != 14 || !ask {
		t.Errorf("settles with %v, %v: 13 is missing", first, ask)
	}
	if g.discard(); g.holds() {
		t.Error("something is kept")
	}
}

// newExecutor returns one with a region, and room for a receive.
func newExecutor(t *testing.T) (*executor, *memreg.Region) {
	t.Helper()
	const all = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	table := memreg.NewTable(rand.New(rand.NewPCG(1, 1)).Uint32)
	c := &conn.Conn{State: ib.StateRTS, MTU: 256, Shift: 8, Memory: table, PD: table.AllocPD(), Scratch: new(conn.Scratch)}
	c.Attr.Access, c.Attr.PathMTU = all, rocev2.MTU256
	mr, err := table.Register(c.PD, memreg.Local(make([]byte, 4096)), memreg.Options{Access: all})
	if err != nil {
		t.Fatal(err)
	}
	x := new(executor)
	x.init(c, &Config{RecvCQ: discard{}, MaxRecvWR: 2, MaxRecvSGE: 1})
	return x, mr
}

// TestExecutorAlone: what it says of requests.
func TestExecutorAlone(t *testing.T) {
	t.Parallel()
	x, mr := newExecutor(t)
	send := func(op rocev2.Opcode, n int) outcome {
		p, info := request(op, 0, n)
		if !x.admits(p, info) {
			return outcome{verdict: refused}
		}
		return x.send(p, info)
	}
	if o := send(rocev2.RCSendFirst, 256); o.verdict != notReady {
		t.Errorf("without a receive: %+v", o)
	}
	if err := x.receives.Post(&ib.RecvWR{SGList: []ib.SGE{mr.All()}}); err != nil {
		t.Fatal(err)
	}
	if a := x.credits(7); a.MSN != 7 || x.starves(7) {
		t.Errorf("credits are %+v", a)
	}
	if o := send(rocev2.RCSendFirst, 256); o.verdict != executed {
		t.Errorf("first: %+v", o)
	}
	if o := send(rocev2.RCSendOnly, 1); o.verdict != refused {
		t.Errorf("another message in the middle of one: %+v", o)
	}
	if o := send(rocev2.RCSendLast, 8); o.verdict != ended || x.done != 264 {
		t.Errorf("last: %+v, %d bytes", o, x.done)
	}
	p, info := request(rocev2.RCWriteOnly, 0, 8)
	p.RETH = rocev2.RETH{VA: mr.Addr() + 4090, RKey: uint32(mr.RKey()), Length: 8}
	if o := x.write(p, info); o.verdict != refused || o.syndrome != rocev2.NAKRemoteAccess {
		t.Errorf("a WRITE beyond the region: %+v", o)
	}
	p.AtomicETH = rocev2.AtomicETH{VA: mr.Addr() + 512, RKey: uint32(mr.RKey()), SwapAdd: 5}
	x.execute(p, rocev2.OpFetchAdd)
	if v, o := x.execute(p, rocev2.OpFetchAdd); v != 5 || o.verdict != executed {
		t.Errorf("an atomic: %d, %+v", v, o)
	}
	p.AtomicETH.VA++
	if _, o := x.execute(p, rocev2.OpFetchAdd); o.verdict != refused || o.syndrome != rocev2.NAKInvalidRequest {
		t.Errorf("a misaligned atomic: %+v", o)
	}
}

// TestAnswersAlone: what they owe a peer, and what a duplicate gets.
func TestAnswersAlone(t *testing.T) {
	t.Parallel()
	a := answers{c: &conn.Conn{State: ib.StateRTS, MTU: 256, Shift: 8}}
	a.resize(1)
	a.begin(100)
	a.moveOn(3, true)
	if a.acknowledge(102); !onlyAck(&a) || a.epsn != 103 || a.msn != 1 {
		t.Errorf("after a message: %+v", a)
	}
	read, _ := request(rocev2.RCReadRequest, 103, 0)
	read.RETH.Length = 1000
	if a.busy() {
		t.Fatal("busy")
	}
	a.add(read, rocev2.OpReadRequest, 4, 0)
	if !a.busy() || onlyAck(&a) || a.epsn != 107 || a.msn != 2 {
		t.Errorf("after a READ of 4 packets: %+v", a)
	}
	a.sent(1) // the acknowledgement
	for range 4 {
		a.sent(1)
	}
	if !a.queue.empty() || a.busy() {
		t.Error("a READ is not answered after its packets")
	}
	if lost := a.duplicate(read, rocev2.OpReadRequest); lost || a.queue.empty() || a.first().left != 4 {
		t.Errorf("a duplicate is answered with %+v", a.first())
	}
	a.end(107, rocev2.NAKRemoteAccess, true)
	if e := a.first(); e.kind != responseNAK || e.psn != 103 || e.syndrome != rocev2.NAKRemoteOperational {
		t.Errorf("the end is %+v: the READ before has no answer", e)
	}
}

// TestTransmitterAlone: it writes what waits, with the data as it is then.
func TestTransmitterAlone(t *testing.T) {
	t.Parallel()
	x, mr := newExecutor(t)
	a := answers{c: x.c}
	a.resize(1)
	read, _ := request(rocev2.RCReadRequest, 0, 0)
	read.RETH = rocev2.RETH{VA: mr.Addr(), RKey: uint32(mr.RKey()), Length: 300}
	a.add(read, rocev2.OpReadRequest, 2, 0)
	if f := mr.CopyIn(0, []byte{1, 2, 3}); f != ib.FaultNone {
		t.Fatal(f)
	}
	tx := transmitter{answers: &a, exec: x}
	e := &end{t: t}
	for _, want := range []rocev2.Opcode{rocev2.RCReadResponseFirst, rocev2.RCReadResponseLast} {
		out := conn.NewOutput(e, 1)
		if wrote, f := tx.next(0, out.Room(), &out); !wrote || f != ib.FaultNone {
			t.Fatalf("%v, fault %v", wrote, f)
		}
		var p rocev2.Packet
		if err := p.Parse(e.buf[:e.n+rocev2.ICRCLen]); err != nil || p.BTH.Opcode != want {
			t.Errorf("%v, %v, not %v", err, p.BTH.Opcode, want)
		}
		if want == rocev2.RCReadResponseFirst && p.Payload[2] != 3 {
			t.Errorf("the data is %v", p.Payload[:3])
		}
	}
	if !a.queue.empty() {
		t.Error("there is something left")
	}
}

func onlyAck(a *answers) bool {
	return a.queue.tail-a.queue.head == 1 && a.first().kind == responseAck
}
