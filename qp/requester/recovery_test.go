package requester

import (
	"slices"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/qp/conn"
	"github.com/gosoftroce/rocev2/qp/queue"
	"github.com/gosoftroce/rocev2/qp/trace"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// recovered is recovery over a stream, with neither a requester nor packets.
type recovered struct {
	*recovery
	t     *testing.T
	done  *sink
	first rocev2.PSN
}

// newRecovered returns one of which a WRITE of that many packets is in flight.
func newRecovered(t *testing.T, native bool, packets int) *recovered {
	t.Helper()
	s, done := newStream(0)
	r := &recovered{recovery: new(recovery), t: t, done: done, first: s.una}
	r.init(s, time.Millisecond)
	if native {
		s.c.Pool = queue.NewPool(64)
	}
	s.c.CC.Control = cc.NewWindow(cc.Config{})
	s.c.CC.Reset()
	s.c.Attr.Timeout, s.c.Attr.RetryCount, s.c.Attr.RNRRetry = 14, 1, 1
	r.configure(ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry)
	r.rtt.begin(s.una)
	s.ring.Push(&ib.SendWR{Opcode: ib.OpWrite}, uint32(packets)<<s.c.Shift, s.signalAll)
	r.send(0)
	return r
}

// send takes all that is at the cursor for sent at now, and returns how many
// packets that are.
func (r *recovered) send(now clock.Time) (n int) {
	for ; !r.s.empty(); n++ {
		w := r.s.ring.At(r.s.cur)
		if r.s.cur == r.s.started {
			r.s.number(w, r.s.c.PSNs(w.Length), 0)
		}
		var rq request
		r.s.cut(&rq, r.s.cur, r.s.nxt)
		rq.ack = rq.ends()
		repeated := r.s.goesAgain()
		r.s.sent(&rq, 1)
		r.sent(now, &rq, 1, repeated)
	}
	return n
}

// resend takes all that is to be sent again while sending goes on for sent at
// now, and returns the places of the packets.
func (r *recovered) resend(now clock.Time) (places []uint32) {
	r.t.Helper()
	for len(places) < 1000 {
		var rq request
		if r.gaps == nil || !r.gaps.waits() || !r.gaps.next(now, &rq, queue.Reorder{}) {
			i, psn, ok := r.repair.next(r.s)
			if !ok {
				return places
			}
			r.s.cut(&rq, i, psn)
			rq.why = trace.Repaired
		}
		r.sentAgain(now, &rq)
		places = append(places, rq.rel)
	}
	r.t.Fatal("packets are sent again without end")
	return nil
}

// acknowledge acknowledges that many packets from the first on.
func (r *recovered) acknowledge(now clock.Time, packets int) {
	from, pos := r.s.una, r.s.posUna
	r.s.acknowledgeBefore(r.first.Add(packets))
	r.progress(now, from, pos)
}

// due returns the deadline.
func (r *recovered) due() clock.Time {
	r.t.Helper()
	at, ok := r.deadline()
	if !ok {
		r.t.Fatal("there is no deadline")
	}
	return at
}

// TestRecoveryTimeout: without an answer the stream goes back after the local
// ACK timeout, as often as the count says, which progress reloads; then the
// oldest request fails (IBTA 9.7.6.1.3). Toward a peer that is not native
// nothing else happens.
func TestRecoveryTimeout(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, false, 4)
	now, timeout := clock.Time(0), rocev2.AckTimeout(14)
	expire := func() {
		t.Helper()
		for at := r.due(); at < now.Add(timeout); at = r.due() { // the time of a probe, which is none here
			if r.timeout(at); r.s.goesAgain() {
				t.Fatalf("all is sent again at %d", at)
			}
		}
		now = r.due()
		r.timeout(now)
	}
	expire()
	if n := r.send(now); now != clock.Time(timeout) || n != 4 || !isSilent(r) {
		t.Fatalf("at %d %d packets are sent again", now, n)
	}
	r.acknowledge(now, 1)
	expire()
	if n := r.send(now); n != 3 || r.c.Failed() {
		t.Fatalf("%d packets are sent again, failed: %v", n, r.c.Failed())
	}
	expire()
	if !r.c.Failed() || len(r.done.ids(ib.StatusRetryExcErr)) != 1 || r.c.Stats.Rare().Timeouts != 3 {
		t.Errorf("completed is %v", r.done.got)
	}
}

// TestRecoveryProbe: a native peer that is silent is sent the last packets
// again before the timeout, at no cost (RFC 8985, section 7). When all has come
// nothing is due.
func TestRecoveryProbe(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, true, 4)
	now := r.due()
	if r.timeout(now); now >= clock.Time(rocev2.AckTimeout(14)) || r.c.Stats.Rare().Probes != 1 || r.retry.left != 1 {
		t.Fatalf("at %d there were %d probes", now, r.c.Stats.Rare().Probes)
	}
	if again := r.resend(now); !slices.Equal(again, []uint32{0}) || r.s.goesAgain() {
		t.Errorf("%v is sent again, where the round trip is not known", again)
	}
	r.acknowledge(now+1000, 4)
	if _, ok := r.deadline(); ok || isSilent(r) || len(r.done.ids(ib.StatusSuccess)) != 1 {
		t.Error("something is due, and all is acknowledged")
	}
}

// TestRecoverySelective: of what a selective acknowledgement shows to be
// missing each packet is sent again once, and what is missing after all that
// was kept is not. The controller hears of it.
func TestRecoverySelective(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, true, 20)
	r.kept().late.path.Judge()
	told := &lossCounter{Controller: r.c.CC.Control}
	pipe := r.pipe()
	r.c.CC.Control = told
	p := rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.SelectiveAck, PSN: r.first.Add(2)}, Payload: []byte{0b11110111, 0b111}}
	from, pos := r.s.una, r.s.posUna
	r.s.acknowledgeBefore(p.BTH.PSN)
	if !r.selectiveAck(1000, &p, from, pos, true) || !r.tells {
		t.Fatal("it cannot be true")
	}
	// 2 and 6 are missing, 3 to 5 and 7 to 13 have come, and 14 to 19 are
	// on the way.
	if full := uint64(256 + cc.PacketOverhead); r.pipe() != 6*full || pipe != 20*full || told.n != 2 {
		t.Errorf("%d bytes are on the way, want 6 packets; %d losses are told", r.pipe(), told.n)
	}
	if again := r.resend(1000); !slices.Equal(again, []uint32{2, 6, 6}) {
		t.Errorf("%v is sent again, want 2, 6 and once more the last", again)
	}
	if again := r.resend(2000); again != nil || r.s.goesAgain() {
		t.Errorf("then %v", again)
	}
	p.Payload = []byte{0xff, 0xff, 0xff, 0xff}
	if r.selectiveAck(3000, &p, r.s.una, r.s.posUna, true) {
		t.Error("more is kept than was sent, and that is taken for true")
	}
}

// TestRecoveryNAK: a sequence NAK has a peer that buffers nothing sent all
// again, at the cost of a retry, and no more than a few times without progress.
func TestRecoveryNAK(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, false, 4)
	for i := range 2 * maxRestarts {
		r.sequenceNAK(clock.Time(i))
		want := 4
		if i >= maxRestarts {
			want = 0
		}
		if n := r.send(clock.Time(i)); n != want || r.retry.left != 0 || r.c.Failed() {
			t.Errorf("NAK %d: %d packets are sent again, want %d; %d retries left", i, n, want, r.retry.left)
		}
	}
}

// TestRecoveryRNR: nothing is sent until the time is over that the peer asks
// for, and then all; without a retry left the request fails (IBTA 9.7.5.2.8).
func TestRecoveryRNR(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, false, 4)
	const code = 14 // 1.28 ms
	nak := rocev2.SyndromeRNR(code)
	r.retry.spend()
	r.waitRNR(0, nak)
	at := r.due()
	if r.retry.left != r.retry.limit {
		t.Error("the peer is alive, and the count for lost packets is not reloaded")
	}
	if !r.holds() || at != clock.Time(rocev2.RNRDelay(code)) {
		t.Fatalf("it waits: %v, until %d", r.holds(), at)
	}
	if r.timeout(at - 1); !r.holds() {
		t.Error("it does not wait to the end")
	}
	if r.timeout(at); r.holds() || r.send(at) != 4 {
		t.Error("not all is sent again")
	}
	if r.waitRNR(at, nak); !r.c.Failed() || len(r.done.ids(ib.StatusRNRRetryExcErr)) != 1 {
		t.Errorf("completed is %v", r.done.got)
	}
}

// TestRecoveryWaitsForMemory: while the place of a response is fetched nothing
// is sent, and while that of a packet is, no timer runs.
func TestRecoveryWaitsForMemory(t *testing.T) {
	t.Parallel()
	r := newRecovered(t, false, 4)
	r.fetch.Add(r.c, conn.NeedPayload, memreg.Missing{})
	for range 2 {
		r.timeout(clock.Time(time.Hour))
	}
	if _, ok := r.deadline(); ok || r.c.Stats.Rare().Timeouts != 0 {
		t.Error("a timer runs")
	}
	r.fetch.Add(r.c, conn.NeedResult, memreg.Missing{})
	if r.sequenceNAK(0); !r.holds() || r.s.goesAgain() {
		t.Error("all is sent again while the place of a response is fetched")
	}
}

func isSilent(r *recovered) bool {
	_, silent := r.inFlight()
	return silent
}
