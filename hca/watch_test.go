package hca

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/transport"
)

// lonelyWatcher is watcher where nothing is received but by the test.
func lonelyWatcher(t *testing.T) (a, b *host, qa, qb *QP, m *slowLook) {
	a, b, qa, qb, m = watcher(t)
	m.quick.Store(true)
	a.takeSide()
	m.quick.Store(false)
	a.dev.program.watch = wake.NewAccount(a.shard().now(), wake.MaxCredit, 10*time.Microsecond)
	return a, b, qa, qb, m
}

// watched is what a program does that looks at its memory: it posts a request,
// polls until that is answered, and has made no other call when watched
// returns. It says how long the last poll took.
func (h *host) watched(q *QP, peer *host) time.Duration {
	h.t.Helper()
	h.dev.Program().Posts()
	h.write(q, peer, 8)
	synctest.Wait() // the answer is there
	start := h.shard().now()
	if !h.dev.Program().Poll() {
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
		{"soon", 5 * time.Microsecond, true, wake.WakeWorth - 5*time.Microsecond},
		{"late", 35 * time.Microsecond, true, wake.WakeWorth - 35*time.Microsecond},
		{"too late", 60 * time.Microsecond, false, -wake.LookGaps * 10 * time.Microsecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, qb, _ := lonelyWatcher(t)
			s := a.shard()
			a.dev.program.watch = wake.NewAccount(s.now(), 4*wake.LongestLook, 10*time.Microsecond)
			before := a.dev.program.watch.Credit()
			comes := time.AfterFunc(c.after, func() { b.write(qb, a, 8) })
			defer comes.Stop()
			took := a.watched(qa, b)
			const slack = wake.ClockPolls * 2 * lookTime
			want := min(c.after, wake.LookGaps*10*time.Microsecond)
			if took < want || took > want+slack || wake.Habit(s.side.habit.Load()).Asked() != c.seen {
				t.Errorf("%s: it has looked for %v, and seen a request: %v", c.why, took, wake.Habit(s.side.habit.Load()).Asked())
			}
			if got := a.dev.program.watch.Credit() - before - c.credit; got < -slack || got > slack {
				t.Errorf("%s: the credit is %v, was %v, should have changed by %v", c.why, a.dev.program.watch.Credit(), before, c.credit)
			}
			if wake.Habit(s.side.habit.Load()).Watching() || s.side.has(wake.Called) {
				t.Errorf("%s: it watches: %v, and has called the receiver: %v", c.why, wake.Habit(s.side.habit.Load()).Watching(), s.side.has(wake.Called))
			}
			time.Sleep(c.after)
			a.dev.Program().Poll()
			s.out.transmitDelayed()
			b.waitOK(1)
		})
	}
}

// Where it does not pay, or is not what the program waits for, it does not
// watch.
func TestWatchesNot(t *testing.T) {
	t.Parallel()
	for why, change := range map[string]func(d *Device){
		"as it can be":                nil,
		"nothing is left to be spent": func(d *Device) { d.program.watch = wake.NewAccount(d.now(), 0, 0) },
		"others want the processor":   func(d *Device) { d.program.watch.Ban(d.now()) },
		"another thread watches": func(d *Device) {
			d.shards[0].side.changeHabit(func(h wake.Habit) wake.Habit { n, _ := h.Polled(); return n.Polls() })
		},
		"there is one processor":                 func(d *Device) { d.spin = 1 },
		"a request has come since it has posted": func(d *Device) { d.shards[0].side.changeHabit(wake.Habit.Asks) },
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, _, _ := lonelyWatcher(t)
			s := a.shard()
			a.dev.Program().Posts()
			a.write(qa, b, 8)
			synctest.Wait()
			if change != nil {
				change(a.dev)
			}
			start := s.now()
			if !a.dev.Program().Poll() {
				t.Fatal("no acknowledgement came")
			}
			if took := s.now().Sub(start); (took <= mostPoll) != (change != nil) {
				t.Errorf("%s: the poll has taken %v", why, took)
			}
			start = s.now()
			if a.dev.Program().Poll() || s.now().Sub(start) > mostPoll {
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
			a.dev.program.watch = wake.NewAccount(s.now(), 0, 0) // it was never seen to pay
			start, spent := s.now(), time.Duration(0)
			for range 300 {
				if took := a.watched(qa, b); took > mostPoll {
					spent += took
				}
				if !awake {
					a.dev.Program().Tell()
				} else if s.side.has(wake.Called) {
					t.Fatal("the receiver is to take over, though no peer ever asked")
				}
				time.Sleep(100 * time.Microsecond)
			}
			whole := s.now().Sub(start)
			if most := whole/wake.LookShare + wake.LongestLook + 4*lookTime; spent > most || spent == 0 {
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
		awake := func() bool { return wake.Habit(s.side.habit.Load()).Sleepless() }
		for why, wait := range map[string]func(){
			"it is told by a file": a.dev.Program().Tell,
			"it waits by poll(2)": func() {
				_, _, receives := a.dev.Program().BeginWait(nil, nil)
				a.dev.Program().EndWait(receives)
			},
		} {
			for i := range wake.Sleepless {
				if awake() {
					t.Errorf("%s: it counts as awake after %d posts", why, i)
				}
				a.dev.Program().Posts()
			}
			for range 3 * wake.Sleepless {
				if a.dev.Program().Posts(); !awake() {
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
			for range wake.Sleepless {
				a.dev.Program().Posts()
			}
			if !awake {
				a.dev.Program().Tell()
			}
			looks, away := 0, 20*wake.Preempted
			usual := m.meddler.received
			m.meddler.received = func(batch *transport.RxBatch) {
				usual(batch)
				if looks++; looks == 3 {
					time.Sleep(away)
				}
			}
			before := a.dev.program.watch.Credit()
			took := a.watched(qa, b)
			spent := before - a.dev.program.watch.Credit()
			switch {
			case awake && (took < away+wake.LookGaps*10*time.Microsecond || a.dev.program.watch.Banned() != 0):
				t.Errorf("never asleep: it ceases to watch after %v, until %v", took, a.dev.program.watch.Banned())
			case !awake && (took > away+wake.ClockPolls*2*lookTime || a.dev.program.watch.Banned() <= s.now()):
				t.Errorf("it watches for %v, though others want the processor", took)
			case spent > wake.LongestLook:
				t.Errorf("never asleep: %v: %v are spent", awake, spent)
			}
		})
	}
}
