package tcp

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/heap"
)

// line is a sender and a receiver with a way between them that has a delay and
// no rate, and loses what a test says.
type line struct {
	snd      sender
	rcv      receiver
	tx, rx   Stats
	delay    event.Time
	now      event.Time
	under    heap.Heap[event.Time, arriving]
	lose     func(seq int64, again bool) bool // of the segment that begins there
	sent     []event.Time                     // when segments were sent
	repeated []int64                          // which of them went again
}

type arriving struct {
	s       segment
	payload int
	toRcv   bool
}

func newLine(t *testing.T, bytes int64, c Config) *line {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l := &line{delay: 1 * ms, lose: func(int64, bool) bool { return false }}
	l.snd, l.rcv = newSender(&c, bytes, 0xfffffff0, &l.tx), newReceiver(&c, 7, &l.rx) // numbers wrap
	return l
}

// run plays until nothing is to come, or a time.
func (l *line) run(until event.Time) {
	for {
		l.send()
		at, ok := l.under.Min()
		if !ok {
			at = event.Never
		}
		at = min(at, l.snd.deadline, l.rcv.deadline)
		if at > until || at == event.Never {
			l.now = max(l.now, min(until, at))
			return
		}
		switch l.now = at; {
		case ok && l.at() == at:
			_, x := l.under.Pop()
			if x.toRcv {
				l.rcv.handle(l.now, &x.s, x.payload, false)
			} else if !l.snd.done() {
				l.snd.handle(l.now, &x.s)
			}
		case l.snd.deadline == at:
			l.snd.timeout()
		default:
			l.rcv.timeout()
		}
	}
}

func (l *line) at() event.Time { at, _ := l.under.Min(); return at }

func (l *line) send() {
	for {
		var s segment
		n, kind := l.snd.next(l.now, &s)
		if kind == nothing {
			break
		}
		l.sent = append(l.sent, l.now)
		seq := unwrap(s.seq, l.snd.first, l.snd.una)
		if kind != news {
			l.repeated = append(l.repeated, seq)
		}
		if !l.lose(seq, kind != news) {
			l.under.Push(l.now+l.delay, arriving{s, n, true})
		}
	}
	for s := (segment{}); l.rcv.next(&s); s = (segment{}) {
		l.under.Push(l.now+l.delay, arriving{s: s})
	}
}

// at returns the position of a segment of the first ones.
func at(n int) int64 { return 1 + int64(n)*1460 }

// A burst of losses in one window is repaired in one recovery, each of them
// sent again once, without a timeout, and the window is halved once (RFC 6675).
func TestBurstLoss(t *testing.T) {
	t.Parallel()
	for _, burst := range []int{1, 2, 5, 10} {
		l := newLine(t, 300*1460, Config{})
		lost := map[int64]bool{}
		for i := range burst {
			lost[at(30+i)] = true
		}
		l.lose = func(seq int64, again bool) bool { return lost[seq] && !again }
		l.run(event.Never)
		if !l.snd.done() || l.rcv.received() != 300*1460 {
			t.Fatalf("burst of %d: not all has come: %+v", burst, l.snd)
		}
		if len(l.repeated) != burst || l.tx.Recoveries != 1 || l.tx.Timeouts != 0 || l.rx.Duplicates != 0 {
			t.Errorf("burst of %d: %d sent again, %+v, %+v", burst, len(l.repeated), l.tx, l.rx)
		}
		// Segments 30 to 69 are the third flight, of 40: half of it and
		// what it then grows by.
		if l.snd.w.ssthresh < 15*1460 || l.snd.w.ssthresh > 40*1460 {
			t.Errorf("burst of %d: threshold of %d segments", burst, l.snd.w.ssthresh/1460)
		}
	}
}

// Three duplicates tell of a loss, or more than two segments after it (a FIN
// counts): with fewer the timeout repairs it.
func TestDuplicatesTell(t *testing.T) {
	t.Parallel()
	for behind := 1; behind <= 5; behind++ {
		l := newLine(t, int64(6+behind)*1460-1, Config{InitialWindow: 100, MinRTO: 100 * ms})
		l.lose = func(seq int64, again bool) bool { return seq == at(5) && !again }
		l.run(event.Never)
		if slow := l.tx.Timeouts == 1; !l.snd.done() || slow != (behind < 3) || l.tx.Recoveries == 1 == slow {
			t.Errorf("%d segments after a loss: %+v", behind, l.tx)
		}
	}
}

// A lost segment that is lost again, and the end of a stream, are repaired by
// the timeout. Then the window is one segment, and the threshold half of what
// was in flight (RFC 5681 3.1).
func TestTimeout(t *testing.T) {
	t.Parallel()
	l := newLine(t, 0, Config{MinRTO: 50 * ms})
	losses := 2
	l.lose = func(seq int64, _ bool) bool {
		if seq == at(100) && losses > 0 {
			losses--
			return true
		}
		return false
	}
	for l.tx.Timeouts == 0 && l.now < event.Second {
		l.run(l.now + 100*us)
	}
	// Segments 70 to 149 are the fourth flight, of 80. The recovery halved
	// its window to the half of what was then in flight.
	if w := l.snd.w; w.cwnd > 2*1460 || w.ssthresh > 40*1460 || w.ssthresh < 10*1460 || l.tx.Recoveries != 1 {
		t.Errorf("at %v a window of %d, a threshold of %d, %+v", l.now, w.cwnd, w.ssthresh/1460, l.tx)
	}
	l.run(l.now + 100*ms)
	if l.tx.Timeouts != 1 || l.snd.mode != normal || len(l.repeated) != 2 {
		t.Errorf("then %+v, mode %d, repeated %v", l.tx, l.snd.mode, l.repeated)
	}
}

// Where nothing comes back the timeout is that of RFC 6298: a second for the
// SYN, and doubled each time up to a minute.
func TestBackoff(t *testing.T) {
	t.Parallel()
	l := newLine(t, 1460, Config{})
	l.lose = func(int64, bool) bool { return true }
	l.run(200 * event.Second)
	want := event.Time(0)
	for i, at := range l.sent {
		if at != want {
			t.Errorf("SYN %d was sent at %v, want %v", i, at, want)
		}
		want += min(event.Second<<min(i, 30), mostRTO)
	}
	if len(l.sent) != 9 { // 0, 1, 3, 7, 15, 31, 63, 123, 183 s
		t.Errorf("%d SYNs were sent: %v", len(l.sent), l.sent)
	}
	// With a round trip of 2 ms it is the least one: 1 s, for data.
	l = newLine(t, 0, Config{})
	l.run(20 * ms)
	l.lose = func(int64, bool) bool { return true }
	first := len(l.repeated)
	l.run(40 * event.Second)
	if n := len(l.repeated) - first; n != 5 || l.tx.Timeouts != 5 { // 1, 3, 7, 15, 31 s
		t.Errorf("%d timeouts, and %d sent again", l.tx.Timeouts, n)
	}
	if l.snd.rto.value != 32*event.Second {
		t.Errorf("the timeout is %v", l.snd.rto.value)
	}
}

// After a SYN that was lost the window is one segment, and the timeout 3 s
// until a round trip is known (RFC 5681 3.1, RFC 6298 5.7).
func TestLostSYN(t *testing.T) {
	t.Parallel()
	l := newLine(t, 100*1460, Config{})
	lost := false
	l.lose = func(seq int64, _ bool) bool {
		first := seq == 0 && !lost
		lost = true
		return first
	}
	l.run(event.Second + 3*ms)
	if l.snd.w.cwnd != 1460 || l.snd.rto.value != 3*event.Second || l.snd.nxt != at(1) {
		t.Errorf("a window of %d, a timeout of %v, %d sent", l.snd.w.cwnd, l.snd.rto.value, l.snd.nxt)
	}
	l.run(event.Never)
	if !l.snd.done() || l.snd.rto.value != event.Second {
		t.Errorf("done: %v, timeout %v", l.snd.done(), l.snd.rto.value)
	}
}

// The timeout is that of RFC 6298 by arithmetic: SRTT + 4 · RTTVAR.
func TestRTO(t *testing.T) {
	t.Parallel()
	r := newRTO(1 * us)
	for i, x := range []struct{ sample, srtt, rttvar event.Time }{
		{800, 800, 400}, {800, 800, 300}, {1600, 900, 425}, {100, 800, 518},
	} {
		r.sample(x.sample * us)
		if r.srtt/us != x.srtt || r.rttvar/us != x.rttvar || r.value != r.srtt+4*r.rttvar {
			t.Errorf("sample %d: srtt %v, rttvar %v, rto %v", i, r.srtt, r.rttvar, r.value)
		}
	}
	r.least = DefaultMinRTO
	if r.sample(100 * us); r.value != event.Second {
		t.Errorf("rto %v, less than the least", r.value)
	}
}

// Acknowledgements are for each second segment, or after the delay, and at once
// for what is out of order (RFC 5681 4.2).
func TestDelayedAcknowledgements(t *testing.T) {
	t.Parallel()
	l := newLine(t, 0, Config{InitialWindow: 5, AckDelay: 10 * ms})
	l.run(3 * ms)
	if l.rx.Acks != 2 || l.rcv.deadline != 13*ms {
		t.Errorf("after 5 segments %d acknowledgements, and one waits until %v", l.rx.Acks, l.rcv.deadline)
	}
	l = newLine(t, 0, Config{InitialWindow: 5, AckDelay: 10 * ms})
	l.lose = func(seq int64, again bool) bool { return seq == at(1) && !again }
	l.run(3 * ms)
	if l.rx.Acks != 3 || l.rx.Reordered != 3 {
		t.Errorf("with a gap %d acknowledgements, %+v", l.rx.Acks, l.rx)
	}
}
