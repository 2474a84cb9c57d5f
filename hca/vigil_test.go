package hca

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// watchOver has a vigil see packets with these gaps, again and again for a
// second, and says how many of them came while it was awake, and for how much
// of the time it was.
func watchOver(v *vigil, now clock.Time, gaps ...time.Duration) (seen, awake float64, end clock.Time) {
	const whole = time.Second
	packets, hits, start := 0, 0, now
	var looked time.Duration
	for i := 0; now.Sub(start) < whole; i++ {
		gap := gaps[i%len(gaps)]
		v.earn(now)
		limit := v.limit(now)
		now = now.Add(gap)
		packets++
		switch {
		case limit == 0:
		case gap <= limit:
			v.came(gap)
			hits++
			looked += gap
		default:
			v.vain(limit)
			looked += limit
		}
	}
	return float64(hits) / float64(packets), looked.Seconds() / whole.Seconds(), now
}

// A receiver is awake for packets that come soon after each other, and asleep
// where that costs more than it gains.
func TestVigilPays(t *testing.T) {
	t.Parallel()
	us := func(n ...int) (d []time.Duration) {
		for _, n := range n {
			d = append(d, time.Duration(n)*time.Microsecond)
		}
		return d
	}
	var burst []time.Duration
	for range 20 {
		burst = append(burst, 8*time.Microsecond)
	}
	cases := []struct {
		why                string
		gaps               []time.Duration
		leastSeen          float64
		leastWake, maxWake float64
	}{
		{"one request after the other", us(10), 0.99, 0.9, 1.01},
		{"with gaps of all kinds", us(5, 20, 9, 30, 7), 0.99, 0.9, 1.01},
		{"a burst now and then", append(burst, 2*time.Millisecond), 0.9, 0, 0.11},
		{"a trickle", us(1000), 0, 0, 0.012},
		{"a slow trickle", us(10_000), 0, 0, 0.012},
		{"just not worth it", us(45), 0, 0, 0.05},
		{"just too late", us(51), 0, 0, 0.012},
	}
	for _, c := range cases {
		var v vigil
		now := clock.Time(time.Hour)
		seen, awake, now := watchOver(&v, now, c.gaps...)
		if seen < c.leastSeen || awake < c.leastWake || awake > c.maxWake {
			t.Errorf("%s: awake for %.3f of the packets and %.3f of the time", c.why, seen, awake)
		}
		// What was there before does not keep it from learning anew.
		if seen, _, _ := watchOver(&v, now, cases[0].gaps...); seen < 0.9 {
			t.Errorf("behind %s: awake for %.3f of the packets", c.why, seen)
		}
	}
}

// A thread that wants the processor all the time gets nearly all of it; one
// that wants it now and then costs little.
func TestVigilGivesWay(t *testing.T) {
	t.Parallel()
	var v vigil
	const slice = 3 * time.Millisecond // for which it was awake before it had to give way
	now, awake := clock.Time(time.Hour), time.Duration(0)
	start := now
	for now.Sub(start) < 20*time.Second {
		v.earn(now)
		if v.limit(now) == 0 {
			now = now.Add(time.Millisecond)
			continue
		}
		awake += slice
		now = now.Add(slice)
		v.ban(now)
	}
	if share := awake.Seconds() / now.Sub(start).Seconds(); share > 0.01 {
		t.Errorf("awake for %.3f of the time though others wanted the processor", share)
	}
	now = now.Add(time.Minute)
	banned := time.Duration(0)
	for range 100 {
		now = now.Add(200 * time.Millisecond)
		v.ban(now)
		banned += v.until.Sub(now)
	}
	if share := banned.Seconds() / (100 * 0.2); share > 0.06 {
		t.Errorf("asleep for %.3f of the time though others wanted the processor seldom", share)
	}
}

// looking is a meddler whose Recv takes a little time, and which counts.
type looking struct {
	meddler
	looks, waits atomic.Int64
	quick        atomic.Bool // Recv takes no time
}

const lookTime = 400 * time.Nanosecond

func newLooking() *looking {
	l := &looking{}
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
func TestReceiverKeepsVigil(t *testing.T) { // not parallel: the receivers of a process take turns
	const requests = 1000
	for _, c := range []struct {
		why       string
		gap       time.Duration
		spin      int
		parked    bool
		mostWaits int64 // per 1000 requests
		mostLooks int64
	}{
		{"quickly", 10 * time.Microsecond, defaultSpin, false, 100, 50_000},
		{"quickly, where a program waits", 10 * time.Microsecond, defaultSpin, true, 100, 50_000},
		{"with one processor", 10 * time.Microsecond, 1, false, 2 * requests, 5 * requests},
		{"with one processor, where a program waits", 10 * time.Microsecond, 1, true, 2 * requests, 6 * requests},
		{"slowly", time.Millisecond, defaultSpin, false, 2 * requests, 40_000},
		{"slowly, where a program waits", time.Millisecond, defaultSpin, true, 2 * requests, 40_000},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newLooking()
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

// Packets that no queue pair takes do not keep the poller awake, however soon
// one comes after the other: any host can send them.
func TestStrangersKeepNobodyAwake(t *testing.T) { // not parallel, as TestReceiverKeepsVigil
	synctest.Test(t, func(t *testing.T) {
		const packets = 1000
		m := newLooking()
		a, b := newMeddled(t, Config{Spin: defaultSpin}, &m.meddler)
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
	for beginVigil() {
		held++
	}
	defer vigils.Add(int32(-held))
	synctest.Test(t, func(t *testing.T) {
		m := newLooking()
		a, b := newMeddled(t, Config{}, &m.meddler)
		a.dev.spin = defaultSpin
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
		time.Sleep(standbyBan + 4*maxStandbyTick)
		synctest.Wait() // the receiver waits in the link
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.cq.Wait(ctx, make([]ib.WC, 1))
		synctest.Wait()
		if s.poller.blocked.Load() {
			t.Fatal("the program is the poller beside the receiver")
		}
		b.write(qb, a, 8) // not for the program that waits
		deliver()
		if !s.poller.blocked.Load() {
			t.Error("nobody receives, though a program waits")
		}
	})
}
