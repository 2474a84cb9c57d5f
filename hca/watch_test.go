package hca

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// lonelyWatcher is watcher where nothing is received but by the test.
func lonelyWatcher(t *testing.T) (a, b *host, qa, qb *QP, m *looking) {
	a, b, qa, qb, m = watcher(t)
	m.quick.Store(true)
	a.takePoller()
	m.quick.Store(false)
	s := a.shard()
	s.watched.since = s.now()
	return a, b, qa, qb, m
}

// watched is what a program does that looks at its memory: it posts a request,
// polls until that is answered, and has made no other call when watched
// returns. It says how long the last poll took.
func (h *host) watched(q *QP, peer *host) time.Duration {
	h.t.Helper()
	h.dev.Posts()
	h.write(q, peer, 8)
	synctest.Wait() // the answer is there
	start := h.shard().now()
	if !h.dev.Poll() {
		h.t.Fatal("no acknowledgement came")
	}
	took := h.shard().now().Sub(start)
	h.waitOK(1)
	return took
}

// mostPoll is more than a poll takes that does not watch, and less than one
// takes that does.
const mostPoll = 2 * lookTime

// A program that has got the answer to its request looks for that of its peer.
// It sees it, where it comes soon, and ceases where it does not.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    string
		after  time.Duration // the request of the peer comes
		seen   bool
		credit time.Duration // by so much it becomes more, or less
	}{
		{"soon", 5 * time.Microsecond, true, wakeWorth - 5*time.Microsecond},
		{"late", 35 * time.Microsecond, true, wakeWorth - 35*time.Microsecond},
		{"too late", 60 * time.Microsecond, false, -vigilGaps * 10 * time.Microsecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, qb, _ := lonelyWatcher(t)
			s := a.shard()
			s.watched.credit = 4 * longestVigil
			s.watched.since = s.now()
			before := s.watched.credit
			comes := time.AfterFunc(c.after, func() { b.write(qb, a, 8) })
			defer comes.Stop()
			took := a.watched(qa, b)
			const slack = vigilClockPolls * 2 * lookTime
			want := min(c.after, vigilGaps*10*time.Microsecond)
			if took < want || took > want+slack || s.asked.Load() != c.seen {
				t.Errorf("%s: it has looked for %v, and seen a request: %v", c.why, took, s.asked.Load())
			}
			if got := s.watched.credit - before - c.credit; got < -slack || got > slack {
				t.Errorf("%s: the credit is %v, was %v, should have changed by %v", c.why, s.watched.credit, before, c.credit)
			}
			if s.watching.Load() || s.poller.called.Load() {
				t.Errorf("%s: it watches: %v, and has called the receiver: %v", c.why, s.watching.Load(), s.poller.called.Load())
			}
			time.Sleep(c.after)
			a.dev.Poll()
			s.flushDelayed()
			b.waitOK(1)
		})
	}
}

// Where it does not pay, or is not what the program waits for, it does not
// watch.
func TestWatchesNot(t *testing.T) {
	t.Parallel()
	for why, change := range map[string]func(s *shard){
		"as it can be":                           nil,
		"nothing is left to be spent":            func(s *shard) { s.watched.credit = 0 },
		"others want the processor":              func(s *shard) { s.watched.ban(s.now()) },
		"another thread watches":                 func(s *shard) { s.watching.Store(true) },
		"there is one processor":                 func(s *shard) { s.spin = 1 },
		"a request has come since it has posted": func(s *shard) { s.asked.Store(true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, _, _ := lonelyWatcher(t)
			s := a.shard()
			a.dev.Posts()
			a.write(qa, b, 8)
			synctest.Wait()
			if change != nil {
				change(s)
			}
			start := s.now()
			if !a.dev.Poll() {
				t.Fatal("no acknowledgement came")
			}
			if took := s.now().Sub(start); (took <= mostPoll) != (change != nil) {
				t.Errorf("%s: the poll has taken %v", why, took)
			}
			start = s.now()
			if a.dev.Poll() || s.now().Sub(start) > mostPoll {
				t.Errorf("%s: it watches after a poll that has found nothing", why)
			}
			a.waitOK(1)
		})
	}
}

// What a peer never does is watched for with a share of the time only, whether
// the program sleeps at times or not.
func TestWatchInVain(t *testing.T) {
	t.Parallel()
	for _, awake := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, _, _ := lonelyWatcher(t)
			s := a.shard()
			s.watched = vigil{since: s.now()} // it was never seen to pay
			start, spent := s.now(), time.Duration(0)
			for range 300 {
				if took := a.watched(qa, b); took > mostPoll {
					spent += took
				}
				if !awake {
					a.dev.Tell()
				} else if s.poller.called.Load() {
					t.Fatal("the receiver is to take over, though no peer ever asked")
				}
				time.Sleep(100 * time.Microsecond)
			}
			whole := s.now().Sub(start)
			if most := whole/vigilShare + longestVigil + 4*lookTime; spent > most || spent == 0 {
				t.Errorf("never asleep: %v: it has watched for %v of %v", awake, spent, whole)
			}
		})
	}
}

// A program counts as one that never sleeps after enough posts in a row without
// a wait of any kind.
func TestNeverSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _, _, _, _ := lonelyWatcher(t)
		s := a.shard()
		awake := func() bool { return s.posts.Load() == sleepless }
		for why, wait := range map[string]func(){
			"it is told by a file": a.dev.Tell,
			"it waits by poll(2)": func() {
				_, _, receives := a.dev.BeginWait(nil, nil)
				a.dev.EndWait(receives)
			},
		} {
			for i := range sleepless {
				if awake() {
					t.Errorf("%s: it counts as awake after %d posts", why, i)
				}
				a.dev.Posts()
			}
			for range 3 * sleepless {
				if a.dev.Posts(); !awake() {
					t.Fatalf("%s: it does not stay awake", why)
				}
			}
			if wait(); awake() {
				t.Errorf("%s: it counts as awake", why)
			}
		}
	})
}

// While a program watches, another thread gets the processor. A program that
// sleeps at times gives way for a while. One that never sleeps watches on: the
// time that others have had counts for nothing.
func TestWatchInterrupted(t *testing.T) {
	t.Parallel()
	for _, awake := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, _, m := lonelyWatcher(t)
			s := a.shard()
			for range sleepless {
				a.dev.Posts()
			}
			if !awake {
				a.dev.Tell()
			}
			looks, away := 0, 20*preempted
			usual := m.meddler.received
			m.meddler.received = func(batch *transport.RxBatch) {
				usual(batch)
				if looks++; looks == 3 {
					time.Sleep(away)
				}
			}
			before := s.watched.credit
			took := a.watched(qa, b)
			spent := before - s.watched.credit
			switch {
			case awake && (took < away+vigilGaps*10*time.Microsecond || s.watched.until != 0):
				t.Errorf("never asleep: it ceases to watch after %v, until %v", took, s.watched.until)
			case !awake && (took > away+vigilClockPolls*2*lookTime || s.watched.until <= s.now()):
				t.Errorf("it watches for %v, though others want the processor", took)
			case spent > longestVigil:
				t.Errorf("never asleep: %v: %v are spent", awake, spent)
			}
		})
	}
}
