package tcp

import (
	"math"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// After a loss the window follows W_cubic(t) = C (t - K)^3 + W_max, with C 0.4
// and K such that it begins at 0.7 of W_max (RFC 9438 4.2), for twice as long
// as it takes to come back.
func TestCubicGrows(t *testing.T) {
	t.Parallel()
	const rtt = 100 * ms
	l := newLine(t, 0, Config{Control: CUBIC, Window: 64 << 20})
	l.delay = rtt / 2
	l.lose = func(seq int64, again bool) bool { return seq == at(700) && !again }
	for l.snd.w.cubic.waits && l.now < 10*event.Second {
		l.run(l.now + ms)
	}
	const mss = 1460.
	u := &l.snd.w.cubic
	began, most := u.began, float64(u.most)/mss
	if got := float64(l.snd.w.ssthresh) / mss / most; got < .69 || got > .71 {
		t.Errorf("the window was reduced to %.3f of it", got)
	}
	k := math.Cbrt(most * .3 / .4)
	cubic := func(t event.Time) float64 { return .4*math.Pow(float64(t-began)/1e12-k, 3) + most }
	for end := began + event.Time(2*k*1e12); l.now < end; l.run(l.now + rtt) {
		// It aims at the window of a round trip later.
		if got := float64(l.snd.w.cwnd) / mss; got < cubic(l.now-rtt)-1 || got > cubic(l.now+rtt)+1 {
			t.Fatalf("after %v of K %.3f s a window of %.2f segments, and the formula has %.2f", l.now-began, k, got, cubic(l.now))
		}
	}
	if got := float64(l.snd.w.cwnd) / mss; l.tx.Recoveries != 1 || got < 1.25*most {
		t.Errorf("at the end %.0f segments of %.0f, %+v", got, most, l.tx)
	}
}

// With one loss for each 1/p segments the mean window is 1.054 (RTT/p)^(3/4)
// segments (RFC 9438 5.1, equation 6), and where round trips are short that of
// Reno, sqrt(1.5/p) (4.3), within 5 %.
func TestCubicRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rtt   event.Time
		every int64 // 1/p
		cubic bool
	}{{50 * ms, 100_000, true}, {100 * ms, 100_000, true}, {20 * ms, 50_000, false}, {1 * ms, 1_000, false}, {1 * ms, 10_000, false}} {
		want := math.Sqrt(1.5 * float64(c.every))
		if c.cubic {
			want = 1.054 * math.Pow(float64(c.rtt)/1e12*float64(c.every), .75)
		}
		l := newLine(t, 0, Config{Control: CUBIC, Window: 64 << 20, AckEvery: 1})
		l.delay = c.rtt / 2
		l.lose = func(seq int64, again bool) bool { // the first one ends slow start
			return (seq == at(100) || seq/1460%c.every == c.every-1) && !again
		}
		periods := func(n uint64) (int64, event.Time) {
			for l.tx.Recoveries < n && l.now < 10_000*event.Second {
				l.run(l.now + c.rtt/4)
			}
			return l.rcv.received(), l.now
		}
		periods(1)
		if w := &l.snd.w; c.cubic {
			// It comes to the steady state in hundreds of periods,
			// because the window stands still at the end of each.
			// So it begins there, where the mean is 0.925 of W_max,
			// or just below: above there is fast convergence.
			w.cubic.most = int64(want/.925*.97) * 1460
			w.cubic.prior = w.cubic.most
			w.cwnd, w.ssthresh = w.cubic.most*7/10, w.cubic.most*7/10
		}
		first := uint64(8)
		if c.cubic {
			first = 2
		}
		before, from := periods(first)
		after, to := periods(first + 4)
		got := float64(after-before) / 1460 / (float64(to-from) / float64(c.rtt))
		t.Logf("a round trip of %v, p 1/%d: %.1f segments, %.3f of the formula", c.rtt, c.every, got, got/want)
		if got < want*.95 || got > want*1.05 || l.tx.Timeouts != 0 {
			t.Errorf("a round trip of %v, p 1/%d: a mean window of %.1f segments, and the formula has %.1f; %+v", c.rtt, c.every, got, want, l.tx)
		}
	}
}

// After a timeout the window grows from where slow start ends as at a W_max: K
// is 0 (RFC 9438 4.8). A mark reduces it to 0.7 (4.6), and one that comes when
// it has not come back leaves 0.85 of the window as W_max (4.7).
func TestCubicReductions(t *testing.T) {
	t.Parallel()
	c, err := (Config{Control: CUBIC, MSS: 1000}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	w := newWindow(&c)
	w.cwnd = 100_000
	if !w.echo(1, 100_001, 1000, true) || w.cwnd != 70_000 || w.cubic.most != 100_000 {
		t.Errorf("after a mark %d, W_max %d", w.cwnd, w.cubic.most)
	}
	w.grow(1000, 2, event.Second, ms)
	if k := w.cubic.k; k < 4_217_000 || k > 4_218_000 { // the cube root of 75
		t.Errorf("K is %d us", k)
	}
	w.cut(w.cwnd)
	if got := w.cubic.most; got < 59_500 || got > 60_000 { // 0.85 of 70 segments
		t.Errorf("fast convergence leaves a W_max of %d", got)
	}
	w.timeout(40_000, false)
	if w.cwnd != 1000 || w.ssthresh != 28_000 {
		t.Errorf("after a timeout %d, ssthresh %d", w.cwnd, w.ssthresh)
	}
	for w.cwnd < w.ssthresh {
		w.grow(1000, 1, 2*event.Second, ms)
	}
	w.grow(1000, 1, 2*event.Second, ms)
	if u := &w.cubic; u.k != 0 || u.most != 28_000 || u.began != 2*event.Second {
		t.Errorf("then %+v", u)
	}
}

// Where the receiver's window is what limits a stream, the time does not count:
// the window of the network stays what it is.
func TestCubicStandsStill(t *testing.T) {
	t.Parallel()
	l := newLine(t, 0, Config{Control: CUBIC, Window: 60 * 1460})
	l.delay = 50 * ms
	l.lose = func(seq int64, again bool) bool { return seq == at(100) && !again }
	l.run(20 * event.Second)
	before := l.snd.w.cwnd
	l.run(120 * event.Second)
	if w := &l.snd.w; l.tx.Recoveries != 1 || w.cwnd != before || w.cwnd > 100*1460 {
		t.Errorf("a window of %d segments, then %d, %+v", before/1460, w.cwnd/1460, l.tx)
	}
}

// CUBIC and Reno share a cable where round trips are short, as Reno's share of
// it says (4.3).
func TestCubicBesideReno(t *testing.T) {
	t.Parallel()
	w := newWorld(t, conditions{hosts: 3, rate: 1, times: 10, delay: 25 * us, queue: 60_000})
	a := w.connect(0, 2, 0, Config{Control: CUBIC, MinRTO: 5 * ms})
	b := w.connect(1, 2, 0, Config{Control: Reno, MinRTO: 5 * ms})
	w.n.Run(400 * ms)
	x, y := a.Received(), b.Received()
	w.n.Run(2400 * ms)
	x, y = a.Received()-x, b.Received()-y
	if share := float64(x) / float64(x+y); share < .4 || share > .75 {
		t.Errorf("CUBIC has %.2f of the cable: %+v, %+v", share, a.Stats(), b.Stats())
	}
	if rate := float64(x+y) * 8 / 2; rate < 1e9*1460/1538*.95 {
		t.Errorf("%.4g bit/s together", rate)
	}
}
