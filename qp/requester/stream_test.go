package requester

import (
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/rocev2"
)

// sink notes the completions that it gets.
type sink struct{ got []ib.WC }

func (s *sink) Complete(wc *ib.WC) bool {
	s.got = append(s.got, *wc)
	return true
}

// ids returns the IDs of the completions with a status.
func (s *sink) ids(status ib.Status) (ids []uint64) {
	for _, wc := range s.got {
		if wc.Status == status {
			ids = append(ids, wc.ID)
		}
	}
	return ids
}

// newStream returns a stream of packets of 256 bytes that begins shortly before
// PSNs begin anew, without the other parts.
func newStream(readChunk int) (*stream, *sink) {
	s, done := new(stream), new(sink)
	c := &conn.Conn{MTU: 256, Shift: 8, State: ib.StateRTS, Scratch: new(conn.Scratch)}
	s.init(c, &Config{SendCQ: done, MaxSendWR: 16, MaxSendSGE: 1, ReadChunk: readChunk, SignalAll: true})
	s.reset()
	s.setMTU()
	s.begin(0xfffffe)
	return s, done
}

// send takes all that is at the cursor for sent, and returns the requests.
func (s *stream) send() (sent []request) {
	for !s.empty() {
		w := s.ring.At(s.cur)
		if s.cur == s.started {
			s.number(w, s.c.PSNs(w.Length), 0)
		}
		var rq request
		s.cut(&rq, s.cur, s.nxt)
		s.sent(&rq, 1)
		sent = append(sent, rq)
	}
	return sent
}

// TestStreamCuts: messages are cut into packets of the path MTU, READs into
// requests of a chunk, which take the PSNs of their responses (IBTA 9.7.3).
// Positions count what is asked for.
func TestStreamCuts(t *testing.T) {
	t.Parallel()
	s, _ := newStream(512)
	s.ring.Push(&ib.SendWR{Opcode: ib.OpWrite}, 600, s.signalAll)
	s.ring.Push(&ib.SendWR{Opcode: ib.OpRead}, 1100, s.signalAll)
	s.ring.Push(&ib.SendWR{Opcode: ib.OpSend}, 0, s.signalAll)
	type cut struct {
		psn     rocev2.PSN
		off, n  uint32
		psns    uint32
		last    bool
		message uint32
	}
	var got []cut
	for _, rq := range s.send() {
		got = append(got, cut{rq.psn, rq.off, rq.n, rq.psns, rq.ends(), uint32(rq.w.SSN)})
	}
	want := []cut{
		{0xfffffe, 0, 256, 1, false, 1}, {0xffffff, 256, 256, 1, false, 1}, {0, 512, 88, 1, true, 1},
		{1, 0, 512, 2, false, 4}, {3, 512, 512, 2, false, 4}, {5, 1024, 76, 1, true, 4},
		{6, 0, 0, 1, true, 5},
	}
	if !slices.Equal(got, want) {
		t.Errorf("cut into\n%+v, want\n%+v", got, want)
	}
	if bytes := uint64(600 + 1100 + 9*cc.PacketOverhead); s.inFlight() != 9 || s.posNxt != bytes || s.rd != 3 || s.max != 7 {
		t.Errorf("%d PSNs and %d bytes in flight, %d READs; want 9, %d, 3", s.inFlight(), s.posNxt, s.rd, bytes)
	}
}

// TestStreamAcknowledges: an acknowledgement completes requests in order, up to
// one that needs a response of its own (IBTA 9.7.5.1). One that comes when the
// stream has gone back moves the cursor on.
func TestStreamAcknowledges(t *testing.T) {
	t.Parallel()
	s, done := newStream(0)
	for i, op := range []ib.Opcode{ib.OpWrite, ib.OpSend, ib.OpRead, ib.OpWrite} {
		s.ring.Push(&ib.SendWR{ID: uint64(i), Opcode: op}, 512, s.signalAll)
	}
	s.send()
	first := s.una
	if !s.acknowledgeBefore(first.Add(3)) || s.una != first.Add(3) || !slices.Equal(done.ids(ib.StatusSuccess), []uint64{0}) {
		t.Fatalf("una is %v, completed is %v", s.una, done.got)
	}
	s.rewind()
	if s.nxt != first.Add(3) || s.cur != 1 || !s.goesAgain() || s.inFlight() != 0 || s.rd != 0 {
		t.Fatalf("after going back the cursor is %d, %v", s.cur, s.nxt)
	}
	from := s.una
	if s.acknowledgeBefore(first.Add(8)) || s.una != first.Add(4) {
		t.Fatalf("una is %v: a READ completes without its data", s.una)
	}
	if s.catchUp(from); s.nxt != s.una || s.cur != 2 {
		t.Errorf("the cursor is %d, %v, after what is acknowledged", s.cur, s.nxt)
	}
	s.send()
	w := s.head()
	for rel := range uint32(2) {
		_, last := s.chunk.place(w, rel)
		s.answered(w, rel, last)
	}
	if !s.acknowledgeBefore(s.max) || !s.drained() || s.rd != 0 || s.posUna != s.posNxt ||
		!slices.Equal(done.ids(ib.StatusSuccess), []uint64{0, 1, 2, 3}) {
		t.Errorf("una is %v, completed is %v", s.una, done.got)
	}
}

// TestStreamFails: a request that cannot be sent completes with its error when
// those before it have completed, and those after it are flushed (IBTA
// 10.3.1).
func TestStreamFails(t *testing.T) {
	t.Parallel()
	s, done := newStream(0)
	for i := range 3 {
		s.ring.Push(&ib.SendWR{ID: uint64(i), Opcode: ib.OpWrite}, 8, s.signalAll)
	}
	w := s.ring.At(0)
	s.number(w, 1, 0)
	var rq request
	s.cut(&rq, 0, s.nxt)
	s.sent(&rq, 1)
	s.fail(ib.StatusLocProtErr, 7)
	if s.settle(); len(done.got) != 0 || s.c.Failed() {
		t.Fatalf("%v completed before the request before it", done.got)
	}
	s.acknowledgeBefore(s.max)
	s.settle()
	s.flush()
	if !s.c.Failed() || !slices.Equal(done.ids(ib.StatusSuccess), []uint64{0}) ||
		!slices.Equal(done.ids(ib.StatusLocProtErr), []uint64{1}) || !slices.Equal(done.ids(ib.StatusWRFlushErr), []uint64{2}) {
		t.Errorf("completed is %v", done.got)
	}
}

// TestStreamFits: a response must have the opcode and the length of its place.
// Where the READ was asked for again from the middle, a native peer's answers
// to both requests fit (IBTA 9.7.6.1).
func TestStreamFits(t *testing.T) {
	t.Parallel()
	s, _ := newStream(0)
	s.ring.Push(&ib.SendWR{Opcode: ib.OpRead}, 600, s.signalAll)
	s.send()
	w := s.head()
	for _, c := range []struct {
		rel    uint32
		op     rocev2.Opcode
		n      int
		whole  bool // it fits
		again  bool // it fits if the READ was asked for again
		native bool // and then from a native peer only
	}{
		{0, rocev2.RCReadResponseFirst, 256, true, true, false},
		{0, rocev2.RCReadResponseFirst, 255, false, false, false},
		{0, rocev2.RCReadResponseMiddle, 256, false, false, false},
		{1, rocev2.RCReadResponseMiddle, 256, true, true, false},
		{1, rocev2.RCReadResponseFirst, 256, false, true, false},
		{1, rocev2.RCReadResponseLast, 256, false, true, true},
		{2, rocev2.RCReadResponseLast, 88, true, true, false},
		{2, rocev2.RCReadResponseOnly, 88, false, true, false},
		{2, rocev2.RCReadResponseMiddle, 88, false, false, false},
	} {
		p := rocev2.Packet{BTH: rocev2.BTH{Opcode: c.op}, AETH: rocev2.AETH{Syndrome: rocev2.ACKNoCredits}, Payload: make([]byte, c.n)}
		info, _ := c.op.Info()
		first, last := s.chunk.place(w, c.rel)
		for _, resumed := range []bool{false, true} {
			for _, native := range []bool{false, true} {
				s.c.Pool = nil
				if native {
					s.c.Pool = queue.NewPool(1)
				}
				want := c.whole
				if w.Flags = 0; resumed {
					s.resume(0)
					want = c.again && (native || !c.native)
				}
				if got := s.fits(w, c.rel, first, last, &p, info); got != want {
					t.Errorf("%v of %d bytes in place %d, asked for again: %v, native: %v: fits %v", c.op, c.n, c.rel, resumed, native, got)
				}
			}
		}
	}
}
