package requester

import (
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/queue"
)

// read posts a READ of n packets and sends the request.
func (e *end) read(t *testing.T, n uint32) {
	t.Helper()
	if err := e.r.Post(&ib.SendWR{Opcode: ib.OpRead, SGList: []ib.SGE{e.mr.SGE(0, n<<8)}, Signaled: true}); err != nil {
		t.Fatal(err)
	}
	if sent := e.poll(0); len(sent) == 0 {
		t.Fatal("nothing is sent")
	}
}

// A connection that fails in the middle of a run takes no packet after that.
func TestRunThatFails(t *testing.T) {
	t.Parallel()
	e := newEnd(t, cc.NewWindow(cc.Config{}))
	e.c.Pool = queue.NewPool(64)
	e.c.Attr.MaxRdAtomic, e.c.Attr.RetryCount = 4, 0
	e.r.Configure(ib.AttrRetryCount)
	e.read(t, 20)
	e.r.stream.una, e.r.stream.posUna = e.r.stream.una.Next(), e.r.stream.posUna+256+cc.PacketOverhead
	// A repair that has shown the loss of what is after it.
	e.r.recovery.repair = repair{run: 1, start: e.r.stream.una, end: e.r.stream.una.Add(3), limit: e.r.stream.nxt}
	v := e.r.Middle(e.r.stream.una, 0)
	v.Release()
	if v.Len() != 18*256 {
		t.Fatalf("memory of %d bytes, want 18 packets", v.Len())
	}
	if n := e.r.HandleRun(0, 10); n != 3 || !e.c.Failed() {
		t.Errorf("%d packets were taken, want 3; failed: %v", n, e.c.Failed())
	}
}

// A run that ends before answers which were kept, and are not any more, has
// them asked for again at once.
func TestRunBeforeGivenUp(t *testing.T) {
	t.Parallel()
	e := newEnd(t, cc.NewWindow(cc.Config{}))
	e.c.Pool = queue.NewPool(64)
	e.c.Attr.MaxRdAtomic = 4
	e.read(t, 20)
	e.r.stream.una, e.r.stream.posUna = e.r.stream.una.Next(), e.r.stream.posUna+256+cc.PacketOverhead
	s := e.r.recovery.kept()
	s.reads = e.c.Pool.OpenBoard(e.r.stream.una, &s.late.back, 1024)
	s.reads.Update(e.r.stream.una, e.r.stream.max, []byte{0b11111100})
	if n := e.r.HandleRun(0, 3); n != 3 {
		t.Fatalf("%d packets were taken, want 3", n)
	}
	if h := s.reads.NextLost(); s.reads.Has(e.r.stream.una, e.r.stream.una) || h == nil || h.PSN != e.r.stream.una {
		t.Errorf("the answer to %v is not asked for again", e.r.stream.una)
	}
}

// Long requests go only while two of them fit into the window and into what the
// driver lets go, and are not for a controller that works with rates.
func TestLongReadRequests(t *testing.T) {
	t.Parallel()
	e := newEnd(t, cc.NewWindow(cc.Config{}))
	e.c.Pool = queue.NewPool(64)
	turn, s := turn{r: &e.r, s: &e.r.stream, rec: &e.r.recovery, c: &e.c}, &e.r.stream
	s.longReads, s.chunk, e.r.recovery.rtt.known = true, 64, true
	size := 2 * 256 * fullPacket(&e.c)
	for _, c := range []struct {
		limit  cc.Limit
		allows int
		want   bool
	}{
		{cc.Limit{Bytes: size, PSNs: 512}, size, true},
		{cc.Limit{Bytes: size - 2, PSNs: 512}, size, false},
		{cc.Limit{Bytes: size, PSNs: 511}, size, false},
		{cc.Limit{Bytes: size, PSNs: 512}, size - 2, false},
		{cc.Limit{Bytes: size, PSNs: 512, Burst: size}, size, false},
	} {
		w := queue.Send{Opcode: ib.OpRead, Kind: ib.OpReads}
		e.c.CC.Limit, turn.left = c.limit, c.allows
		if flags := turn.shape(&w, 256); (flags == queue.Long) != c.want {
			t.Errorf("%+v, %d bytes may go: flags %x", c.limit, c.allows, flags)
		}
	}
}
