package hca

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca/wake"
)

// A program that polls takes each packet before the receiver, which is woken
// for it, has looked: so that sleeps on inside the system. The program has it
// stand by.
func TestOutrunReceiverStandsBy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		la, lb := fabric.Pair(testAddrA, testAddrB, fabric.Config{Port: fabric.PortConfig{Delay: time.Microsecond}})
		a, b := &host{t: t, dev: New(Config{}, la)}, &host{t: t, dev: New(Config{}, newLate(lb))}
		a.equip()
		b.equip()
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		for i := range wake.OutrunBatches {
			if b.shard().side.has(wake.StandsBy) {
				t.Fatalf("the receiver stands by after %d packets", i)
			}
			a.write(qa, b, 8)
			time.Sleep(time.Microsecond)
			synctest.Wait()
			if !b.dev.Program().Poll() {
				t.Fatal("nothing came")
			}
			synctest.Wait()
		}
		if !b.shard().side.has(wake.StandsBy) {
			t.Error("the receiver waits on in the link")
		}
		a.waitOK(wake.OutrunBatches)
	})
}

// watcher returns two hosts, of which the first has a program that was seen to
// wait for its memory, and a receiver that stands by. Recv of its link takes a
// little time.
func watcher(t *testing.T) (a, b *host, qa, qb *QP, m *slowLook) {
	m = newSlowLook()
	m.quick.Store(true)
	a, b = newMeddled(t, Config{Spin: wake.DefaultSpin}, &m.meddler)
	qa, qb = a.newQP(), b.newQP()
	a.connect(qa, testAddrB, qb.QPN())
	b.connect(qb, testAddrA, qa.QPN())
	a.standBy()
	m.quick.Store(false)
	s := a.shard()
	a.dev.program.watch = wake.NewAccount(s.now(), wake.MaxCredit, 10*time.Microsecond)
	return a, b, qa, qb, m
}

// A program that looks at its memory alone makes no call when a peer has
// written. When it has looked for the peer's request for long enough, the
// receiver takes over at once; not so where the program waits, since it is
// about to do that itself.
func TestWatchLeavesItToTheReceiver(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b, qa, _, _ := watcher(t)
			for range wake.Sleepless {
				a.dev.Program().Posts()
			}
			if waits {
				a.dev.Program().Tell()
			}
			a.write(qa, b, 8)
			synctest.Wait()
			if !a.dev.Program().Poll() {
				t.Fatal("no acknowledgement came")
			}
			synctest.Wait()
			if p := &a.shard().side; p.has(wake.StandsBy) != waits || p.now().Owned() == waits {
				t.Errorf("the program waits: %v, the receiver stands by: %v", waits, p.has(wake.StandsBy))
			}
			a.waitOK(1)
		})
	}
}

// A program that polls on after answers does not look at its memory: what it
// has got does not wait for a request of the peer, and the receiver stands by.
func TestWatchIsNotForOneThatPollsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, _, m := watcher(t)
		s := a.shard()
		a.dev.program.watch = wake.NewAccount(s.now(), 0, 0) // it may not look yet
		m.quick.Store(true)
		for range wake.MostPollsOn {
			a.dev.Program().Posts()
			a.write(qa, b, 8)
			synctest.Wait()
			if !a.dev.Program().Poll() {
				t.Fatal("no acknowledgement came")
			}
			a.dev.Program().Poll()
		}
		m.quick.Store(false)
		a.dev.program.watch = wake.NewAccount(s.now(), wake.MaxCredit, 10*time.Microsecond)
		a.dev.Program().Posts()
		a.write(qa, b, 8)
		synctest.Wait()
		if !a.dev.Program().Poll() {
			t.Fatal("no acknowledgement came")
		}
		synctest.Wait()
		if !s.side.has(wake.StandsBy) {
			t.Error("it polls on, and is taken for one that looks at its memory")
		}
		a.waitOK(wake.MostPollsOn + 1)
	})
}

// The receiver hands over to a goroutine that sleeps beside it, also where the
// last one to go to sleep has gone, or has become the owner: else no goroutine
// would receive until the receiver looks again.
func TestHandsOverToOneThatSleeps(t *testing.T) {
	t.Parallel()
	sleeper := func() *followers {
		f := &followers{w: &waiting{wake: make(chan struct{}, 1)}}
		f.count.Add(1)
		return f
	}
	for _, owns := range []bool{false, true} {
		p := newSide()
		p.on(wake.Takes)
		sleeps, other := sleeper(), sleeper()
		p.joins(sleeps)
		if owns {
			p.state.Store(uint64(wake.State(p.state.Load()) &^ ownedByReceiver(t)))
		}
		if got := p.joins(other); got != owns {
			t.Fatalf("the second one owns: %v", got)
		}
		if owns {
			p.on(wake.Leaves)
			p.on(wake.Takes)
		} else {
			p.parts(other)
		}
		other.count.Add(-1)
		var r wake.Receiver
		if !p.received(&r, 0, 1) {
			t.Fatal("the receiver stays with one that sleeps beside it")
		}
		if len(sleeps.w.wake) == 0 {
			t.Errorf("nothing woke the one that sleeps; the other has owned: %v", owns)
		}
	}
}

// ownedByReceiver returns the bits that say so.
func ownedByReceiver(t *testing.T) wake.State {
	t.Helper()
	p := newSide()
	p.on(wake.Takes)
	return p.now()
}
