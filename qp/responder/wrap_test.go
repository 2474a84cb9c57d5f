package responder

import (
	"math/rand/v2"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/rocev2"
)

// wrapRegion is what a READ of a jump asks for: 2^18 packets of 256 bytes.
const wrapRegion = 1 << 26

// end is a responder alone, with a region whose memory is large, and with a
// ring of resources so large that what is kept in it survives 64 READs.
type end struct {
	t  *testing.T
	c  conn.Conn
	r  Responder
	mr *memreg.Region

	buf [rocev2.MaxPacketLen]byte
	n   int // length of the packet in buf
}

type discard struct{}

func (discard) Complete(*ib.WC) bool { return true }

func newEnd(t *testing.T) *end {
	t.Helper()
	const all = ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic
	table := memreg.NewTable(rand.New(rand.NewPCG(1, 1)).Uint32)
	pd := table.AllocPD()
	mr, err := table.Register(pd, memreg.Local(make([]byte, wrapRegion)), memreg.Options{Access: all})
	if err != nil {
		t.Fatal(err)
	}
	e := &end{t: t, mr: mr, c: conn.Conn{QPN: 2, State: ib.StateRTS, MTU: 256, Shift: 8, Memory: table, PD: pd, Scratch: new(conn.Scratch)}}
	e.c.Attr.Access, e.c.Attr.PathMTU = all, rocev2.MTU256
	e.r.Init(&e.c, Config{RecvCQ: discard{}, MaxRecvSGE: 1})
	e.r.Resize(128)
	e.r.ReadyToReceive(0xfffffe)
	return e
}

func (e *end) Room() []byte                                         { return e.buf[:] }
func (e *end) Commit(n int, _ *ib.AddressVector, _ conn.PacketKind) { e.n = n }

// poll returns the next answer, nil if there is none.
func (e *end) poll() *rocev2.Packet {
	e.t.Helper()
	e.n = 0
	out := conn.NewOutput(e, 1)
	if e.r.Poll(0, false, &out); e.n == 0 {
		return nil
	}
	var p rocev2.Packet
	if err := p.Parse(e.buf[:e.n+rocev2.ICRCLen]); err != nil {
		e.t.Fatal(err)
	}
	return &p
}

// take hands a request for n bytes at the start of the region to the responder.
func (e *end) take(op rocev2.Opcode, psn rocev2.PSN, n uint32) conn.Drop {
	e.t.Helper()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: op, PSN: psn, AckReq: true}}
	p.RETH = rocev2.RETH{VA: e.mr.Addr(), RKey: uint32(e.mr.RKey()), Length: n}
	p.AtomicETH = rocev2.AtomicETH{VA: e.mr.Addr(), RKey: uint32(e.mr.RKey()), SwapAdd: 5}
	info, _ := op.Info()
	if info.Operation == rocev2.OpWrite {
		p.Payload = make([]byte, n)
	}
	d := e.r.HandleRequest(0, &conn.Arrival{Packet: &p}, info)
	if err := e.r.Check(); err != nil {
		e.t.Fatal(err)
	}
	return d
}

// jump has the peer read n packets: of each answer only the last one is sent.
func (e *end) jump(n uint32) {
	e.t.Helper()
	to := e.r.answers.epsn.Add(int(n))
	for e.r.answers.epsn != to {
		step := min(to.Ahead(e.r.answers.epsn), wrapRegion>>8)
		if d := e.take(rocev2.RCReadRequest, e.r.answers.epsn, step<<8); d != conn.DropNone {
			e.t.Fatalf("READ of %d packets: %v", step, d)
		}
		e.skip()
		if e.poll() == nil {
			e.t.Fatal("no answer")
		}
	}
}

// skip leaves only the last packet of the first answer.
func (e *end) skip() {
	a := e.r.answers.queue.at(e.r.answers.queue.head)
	a.psn, a.left = a.psn.Add(int(a.left-1)), 1
	a.start = a.psn
}

// TestWrapAtomic: the result of an atomic is not replayed for the one that has
// its PSN 2^24 packets later (IBTA 9.7.5.1.6).
func TestWrapAtomic(t *testing.T) {
	t.Parallel()
	e := newEnd(t)
	first := e.r.answers.epsn
	e.take(rocev2.RCFetchAdd, first, 8)
	if p := e.poll(); p == nil || p.AtomicAck.Original != 0 {
		t.Fatalf("the first answer is %+v", p)
	}
	e.jump(1<<24 - 1)
	if d := e.take(rocev2.RCFetchAdd, first, 8); d != conn.DropNone {
		t.Fatalf("the second atomic: %v", d)
	}
	for _, what := range []string{"lost", "again"} {
		if p := e.poll(); p == nil || p.BTH.Opcode != rocev2.RCAtomicAcknowledge || p.AtomicAck.Original != 5 {
			t.Errorf("%s: the second answer is %+v, not 5", what, p)
		}
		e.take(rocev2.RCFetchAdd, first, 8) // as the peer does if it was
	}
	if v, _ := e.mr.Load64(0); v != 10 {
		t.Errorf("the memory holds %d after two atomics that add 5", v)
	}
}

// TestWrapRead: a WRITE whose acknowledgement was lost is a duplicate of
// itself, not of the READ that had its PSN 2^24 packets before; and not a
// duplicate of anything in the ring elsewhere (IBTA 9.7.5.1.4).
func TestWrapRead(t *testing.T) {
	t.Parallel()
	e := newEnd(t)
	e.take(rocev2.RCReadRequest, e.r.answers.epsn, 1000)
	for e.poll() != nil {
	}
	e.jump(1<<24 - 3) // to the second packet of the READ
	psn := e.r.answers.epsn
	for _, want := range []conn.Drop{conn.DropNone, conn.DropDuplicate} {
		if d := e.take(rocev2.RCWriteOnly, psn, 8); d != want {
			t.Errorf("WRITE: %v, want %v", d, want)
		}
		if p := e.poll(); p == nil || p.BTH.Opcode != rocev2.RCAcknowledge || p.BTH.PSN != psn || !p.AETH.Syndrome.IsACK() {
			t.Errorf("%v: the answer is %+v", want, p)
		}
	}
}

// TestWrapLastAck: a WRITE of long ago does not become one after the duplicate
// that asks for an acknowledgement, at whatever distance (IBTA 9.7.2,
// 9.7.5.1.4).
func TestWrapLastAck(t *testing.T) {
	t.Parallel()
	e := newEnd(t)
	e.r.answers.res.resize(4) // what the ring holds is not looked at further
	e.take(rocev2.RCWriteOnly, e.r.answers.epsn, 8)
	if e.poll() == nil {
		t.Fatal("no acknowledgement")
	}
	e.jump(1 << 22)
	for range 16 {
		e.jump(1 << 20)
		e.take(rocev2.RCWriteOnly, e.r.answers.epsn.Add(-1<<20-100), 8)
		if p := e.poll(); p != nil {
			t.Errorf("%v %v while %v is expected", p.BTH.Opcode, p.BTH.PSN, e.r.answers.epsn)
		}
	}
}

// TestUnansweredSpan: requests are put off that would make the PSNs between the
// first unanswered READ and the expected one more than 2^23; the READ stays,
// and the peer gets everything (IBTA 9.7.2).
func TestUnansweredSpan(t *testing.T) {
	t.Parallel()
	e := newEnd(t)
	taken := 0
	for e.take(rocev2.RCReadRequest, e.r.answers.epsn, wrapRegion) == conn.DropNone {
		if taken++; taken > 100 {
			t.Fatal("no end")
		}
	}
	if taken != 32 { // 2^18 PSNs each
		t.Errorf("%d READs of 64 MiB wait for their answers", taken)
	}
	if a := e.r.answers.queue.at(e.r.answers.queue.tail - 1); e.c.State != ib.StateRTS || a.kind != responseNAK ||
		a.syndrome != rocev2.NAKSequence || a.psn != e.r.answers.epsn {
		t.Errorf("state %v, last answer %+v", e.c.State, a)
	}
	// The first is answered: there is room for one.
	e.skip()
	e.poll()
	for taken = 0; e.take(rocev2.RCReadRequest, e.r.answers.epsn, wrapRegion) == conn.DropNone; taken++ {
	}
	if taken < 1 || taken > ageStep*256/wrapRegion {
		t.Errorf("%d more are taken", taken)
	}
}
