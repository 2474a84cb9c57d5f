package requester

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// end is a requester alone; the test is its peer.
type end struct {
	t    *testing.T
	c    conn.Conn
	r    Requester
	mr   *memreg.Region
	done int // completions
	psns []rocev2.PSN

	buf [rocev2.MaxPacketLen]byte
}

func newEnd(t *testing.T, control cc.Controller) *end {
	t.Helper()
	table := memreg.NewTable(rand.New(rand.NewPCG(1, 1)).Uint32)
	pd := table.AllocPD()
	mr, err := table.Register(pd, memreg.Local(make([]byte, 1<<16)), memreg.Options{Access: ib.LocalWrite})
	if err != nil {
		t.Fatal(err)
	}
	e := &end{t: t, mr: mr, c: conn.Conn{QPN: 2, MTU: 256, Shift: 8, Memory: table, PD: pd, Scratch: new(conn.Scratch)}}
	e.r.Init(&e.c, Config{SendCQ: e, MaxSendWR: 16, MaxSendSGE: 1, Controller: control, MinProbe: time.Millisecond})
	e.c.Attr.Timeout, e.c.Attr.RetryCount = 14, 7
	e.r.Configure(ib.AttrTimeout | ib.AttrRetryCount)
	e.r.ReadyToReceive()
	e.c.State = ib.StateRTS
	e.r.ReadyToSend(0xfffffe)
	return e
}

func (e *end) Complete(wc *ib.WC) bool {
	e.done++
	return wc.Status == ib.StatusSuccess
}

func (e *end) Room() []byte { return e.buf[:] }

func (e *end) Commit(n int, _ *ib.AddressVector, _ conn.PacketKind) {
	var p rocev2.Packet
	if err := p.Parse(e.buf[:n+rocev2.ICRCLen]); err != nil {
		e.t.Fatal(err)
	}
	e.psns = append(e.psns, p.BTH.PSN)
}

// write posts a WRITE of n bytes.
func (e *end) write(n int) {
	e.t.Helper()
	if err := e.r.Post(&ib.SendWR{Opcode: ib.OpWrite, SGList: []ib.SGE{e.mr.SGE(0, uint32(n))}, Signaled: true}); err != nil {
		e.t.Fatal(err)
	}
}

// poll returns the PSNs of what is sent.
func (e *end) poll(now clock.Time) []rocev2.PSN {
	e.t.Helper()
	e.psns = nil
	out := conn.NewOutput(e, 1000)
	e.r.Poll(now, math.MaxInt, &out)
	if err := e.r.Check(); err != nil {
		e.t.Fatal(err)
	}
	return e.psns
}

// answer hands an acknowledgement or a NAK to the requester.
func (e *end) answer(now clock.Time, psn rocev2.PSN, a rocev2.AETH) {
	e.t.Helper()
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCAcknowledge, PSN: psn}, AETH: a}
	info, _ := p.BTH.Opcode.Info()
	e.r.HandleResponse(now, &p, info)
	if err := e.r.Check(); err != nil {
		e.t.Fatal(err)
	}
}

// jump moves all PSNs on, as though much had been sent and acknowledged.
func (e *end) jump(to rocev2.PSN) { e.r.stream.una, e.r.stream.nxt, e.r.stream.max = to, to, to }

// TestWrapRepair: a repair that ended 2^24 packets ago says nothing about what
// is acknowledged now. PSNs are counted modulo 2^24 (IBTA 9.7.2).
func TestWrapRepair(t *testing.T) {
	t.Parallel()
	e := newEnd(t, cc.NewWindow(cc.Config{}))
	e.c.Pool = queue.NewPool(64)
	e.r.recovery.kept().late.mute = true
	e.write(20 * 256)
	sent := e.poll(0)
	e.answer(0, sent[0], rocev2.AETH{Syndrome: rocev2.NAKSequence})
	if again := e.poll(0); !slices.Equal(again, sent[:repairRun]) || e.c.Stats.Rare().Repairs != 1 {
		t.Fatalf("%v is sent again of %v, %d repairs", again, sent, e.c.Stats.Rare().Repairs)
	}
	e.answer(0, sent[19], rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: 1})
	restarts := e.c.Stats.Rare().Restarts
	e.jump(e.r.recovery.repair.end.Add(-1)) // 2^24 packets later
	for i := range 4 {
		e.write(8)
		sent := e.poll(0)
		e.answer(0, sent[0], rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: rocev2.PSN(2 + i)})
	}
	if e.c.Stats.Rare().Restarts != restarts || e.done != 5 {
		t.Errorf("%d restarts without a loss, %d done", e.c.Stats.Rare().Restarts-restarts, e.done)
	}
}

// A repair that meets a READ ends there: that the READ is answered up to where
// the repair would have ended says nothing about what was sent after it.
func TestRepairEndsAtRead(t *testing.T) {
	t.Parallel()
	e := newEnd(t, cc.NewWindow(cc.Config{}))
	e.c.Pool = queue.NewPool(64)
	e.c.Attr.MaxRdAtomic = 4
	e.r.Configure(ib.AttrMaxRdAtomic)
	const answers = 60
	e.write(8)
	if err := e.r.Post(&ib.SendWR{Opcode: ib.OpRead, SGList: []ib.SGE{e.mr.SGE(0, answers*256)}, Signaled: true}); err != nil {
		t.Fatal(err)
	}
	e.write(8)
	sent := e.poll(0)
	if len(sent) != 3 {
		t.Fatalf("%v is sent", sent)
	}
	if !e.r.recovery.beginRepair(0, probeRun) {
		t.Fatal("no repair")
	}
	if again := e.poll(0); !slices.Equal(again, sent[:1]) {
		t.Fatalf("%v is sent again of %v", again, sent)
	}
	e.answer(0, sent[0], rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: 1})
	for i := range answers {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCReadResponseMiddle, PSN: sent[1].Add(i)}, Payload: make([]byte, 256)}
		switch i {
		case 0:
			p.BTH.Opcode = rocev2.RCReadResponseFirst
		case answers - 1:
			p.BTH.Opcode = rocev2.RCReadResponseLast
		}
		p.AETH = rocev2.AETH{Syndrome: rocev2.ACKNoCredits, MSN: 2}
		info, _ := p.BTH.Opcode.Info()
		if d := e.r.HandleResponse(0, &p, info); d != conn.DropNone {
			t.Fatalf("answer %d: %v", i, d)
		}
	}
	if n := e.c.Stats.Rare().Restarts; n != 0 || e.done != 2 {
		t.Errorf("%d restarts though every packet came, %d done", n, e.done)
	}
}
