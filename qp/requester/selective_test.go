package requester

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// lossCounter counts the losses that its controller is told of.
type lossCounter struct {
	cc.Controller
	n int
}

func (l *lossCounter) Lost(now clock.Time, f *cc.Flight, how cc.Loss) bool {
	l.n++
	return l.Controller.Lost(now, f, how)
}

// A READ takes a PSN for each packet of its answer, and is one packet, of the
// first: where the peer keeps it after a gap, the others are not lost.
func TestAnswersAreNoHoles(t *testing.T) {
	t.Parallel()
	l := &lossCounter{Controller: cc.NewWindow(cc.Config{})}
	e := newEnd(t, l)
	e.c.Pool = queue.NewPool(64)
	e.c.Attr.MaxRdAtomic = 4
	e.write(8)
	if err := e.r.Post(&ib.SendWR{Opcode: ib.OpRead, SGList: []ib.SGE{e.mr.SGE(0, 2560)}}); err != nil {
		t.Fatal(err)
	}
	e.write(8)
	sent := e.poll(0)
	if len(sent) != 3 {
		t.Fatalf("%v is sent", sent)
	}
	// The WRITE is lost, the READ and what follows it are kept.
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.SelectiveAck, PSN: sent[0]}, Payload: []byte{1, 1 << 2}}
	p.AETH.Syndrome = rocev2.ACKNoCredits
	info, _ := p.BTH.Opcode.Info()
	e.r.HandleResponse(1000, &p, info)
	if again := e.poll(1000); l.n != 1 || len(again) == 0 || again[0] != sent[0] {
		t.Errorf("%d packets are lost, %v is sent again; want 1, %v", l.n, again, sent[0])
	}
}

// TestReadsAlone: what is missing of READs is looked for among their responses,
// and not among the packets of a WRITE after them.
func TestReadsAlone(t *testing.T) {
	t.Parallel()
	e := newEnd(t, cc.NewWindow(cc.Config{}))
	e.c.Pool = queue.NewPool(64)
	e.c.Attr.MaxRdAtomic = 4
	if err := e.r.Post(&ib.SendWR{Opcode: ib.OpRead, SGList: []ib.SGE{e.mr.SGE(0, 1024)}}); err != nil {
		t.Fatal(err)
	}
	e.write(2560)
	e.poll(0)
	s := e.r.recovery.kept()
	s.reads, s.bare, s.flight = e.c.Pool.OpenBoard(e.r.stream.una, &s.late.back, 1024), 4, e.r.stream.posNxt
	if n := s.loseBare(s.reads); s.reads.End() != e.r.stream.una.Add(4) {
		t.Errorf("%d packets are lost, up to %d; the READ begins at %d and has 4", n, s.reads.End(), e.r.stream.una)
	}
	if err := e.r.Check(); err != nil {
		t.Error(err)
	}
}
