package hca

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/transport"
)

// slowLook is a meddler whose Recv takes a little time, and which counts.
type slowLook struct {
	meddler
	looks, waits atomic.Int64
	quick        atomic.Bool // Recv takes no time
}

const lookTime = 400 * time.Nanosecond

func newSlowLook() *slowLook {
	l := &slowLook{}
	l.meddler.received = func(b *transport.RxBatch) {
		l.looks.Add(1)
		if !l.quick.Load() {
			time.Sleep(lookTime)
		}
	}
	l.meddler.waits = func() bool {
		l.waits.Add(1)
		return false
	}
	return l
}

// A device whose memory a peer reads, and that no program polls, sleeps between
// two requests only if they are far apart, and when they end. So does a program
// that waits for something else.
func TestReceiverLooksLonger(t *testing.T) { // not parallel: the receivers of a process take turns
	const requests = 1000
	for _, c := range []struct {
		why       string
		gap       time.Duration
		spin      int
		parked    bool
		mostWaits int64 // per 1000 requests
		mostLooks int64
	}{
		{"quickly", 10 * time.Microsecond, wake.DefaultSpin, false, 100, 50_000},
		{"quickly, where a program waits", 10 * time.Microsecond, wake.DefaultSpin, true, 100, 50_000},
		{"with one processor", 10 * time.Microsecond, 1, false, 2 * requests, 5 * requests},
		{"with one processor, where a program waits", 10 * time.Microsecond, 1, true, 2 * requests, 6 * requests},
		{"slowly", time.Millisecond, wake.DefaultSpin, false, 2 * requests, 40_000},
		{"slowly, where a program waits", time.Millisecond, wake.DefaultSpin, true, 2 * requests, 40_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newSlowLook()
			a, b := newMeddled(t, Config{Spin: c.spin}, &m.meddler)
			if c.parked {
				m.quick.Store(true)
				a.standBy()
				m.quick.Store(false)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					a.cq.Wait(ctx, make([]ib.WC, 1))
					close(ended)
				}()
				defer func() { cancel(); <-ended }()
			}
			qa, qb := a.newQP(), b.newQP()
			a.connect(qa, testAddrB, qb.QPN())
			b.connect(qb, testAddrA, qa.QPN())
			time.Sleep(time.Second)
			waits, looks := m.waits.Load(), m.looks.Load()
			for range requests {
				b.write(qb, a, 8)
				time.Sleep(c.gap)
			}
			b.waitOK(requests)
			waits, looks = m.waits.Load()-waits, m.looks.Load()-looks
			if waits > c.mostWaits || looks > c.mostLooks {
				t.Errorf("%s: the receiver went to sleep %d times, and looked %d times", c.why, waits, looks)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			waits, looks = m.waits.Load(), m.looks.Load()
			time.Sleep(time.Minute)
			if waits, looks = m.waits.Load()-waits, m.looks.Load()-looks; waits+looks > 0 {
				t.Errorf("%s: the receiver went to sleep %d times and looked %d times in a minute without packets", c.why, waits, looks)
			}
		})
	}
}

// Packets that no queue pair takes do not keep the owner awake, however soon
// one comes after the other: any host can send them.
func TestStrangersKeepNothingAwake(t *testing.T) { // not parallel, as TestReceiverLooksLonger
	synctest.Test(t, func(t *testing.T) {
		const packets = 1000
		m := newSlowLook()
		a, b := newMeddled(t, Config{Spin: wake.DefaultSpin}, &m.meddler)
		mine, from := a.ud(1, 0), b.ud(2, 0)
		to := new(AH)
		b.must(b.pd.MakeAH(to, ib.AddressVector{DGID: testAddrA}))
		time.Sleep(time.Second)
		looks := m.looks.Load()
		for range packets {
			_, err := from.PostSend([]ib.SendWR{{Opcode: ib.OpSend, Signaled: true, AH: &to.handle, RemoteQPN: mine.QPN(), RemoteQKey: 3, Inline: []byte("hello")}})
			b.must(err)
			b.waitOK(1)
			time.Sleep(10 * time.Microsecond)
		}
		if looks = m.looks.Load() - looks; looks > 5*packets {
			t.Errorf("looked %d times for %d packets", looks, packets)
		}
		b.must(to.Close())
	})
}

// Of the receivers of a process some are awake at most.
func TestFewReceiversAreAwake(t *testing.T) { // not parallel: it counts those of the process
	held := 0
	for beginLooking() {
		held++
	}
	defer looking.Add(int32(-held))
	synctest.Test(t, func(t *testing.T) {
		m := newSlowLook()
		a, b := newMeddled(t, Config{}, &m.meddler)
		a.dev.spin = wake.DefaultSpin
		qa, qb := a.newQP(), b.newQP()
		a.connect(qa, testAddrB, qb.QPN())
		b.connect(qb, testAddrA, qa.QPN())
		time.Sleep(time.Second)
		looks := m.looks.Load()
		b.write(qb, a, 8)
		b.waitOK(1)
		synctest.Wait()
		if looks = m.looks.Load() - looks; looks > 10 {
			t.Errorf("looked %d times though others are awake", looks)
		}
	})
}

// A program that waits receives at once when the receiver leaves that to it.
func TestReceiverHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, qa, qb := connected(t, Config{})
		_ = qa
		s := a.shard()
		time.Sleep(wake.StandbyBan + 4*wake.MaxStandbyTick)
		synctest.Wait() // the receiver waits in the link
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.cq.Wait(ctx, make([]ib.WC, 1))
		synctest.Wait()
		if s.side.has(wake.Asleep) {
			t.Fatal("the program owns the receive side beside the receiver")
		}
		b.write(qb, a, 8) // not for the program that waits
		deliver()
		if !s.side.has(wake.Asleep) {
			t.Error("nothing receives, though a program waits")
		}
	})
}
