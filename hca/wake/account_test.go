package wake

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// lookOver has an account see packets with these gaps, again and again for a
// second, and says how many of them came while it was awake, and for how much
// of the time it was.
func lookOver(v *Account, now clock.Time, gaps ...time.Duration) (seen, awake float64, end clock.Time) {
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
			v.missed(limit)
			looked += limit
		}
	}
	return float64(hits) / float64(packets), looked.Seconds() / whole.Seconds(), now
}

// A receiver is awake for packets that come soon after each other, and asleep
// where that costs more than it gains.
func TestLookingPays(t *testing.T) {
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
		var v Account
		now := clock.Time(time.Hour)
		seen, awake, now := lookOver(&v, now, c.gaps...)
		if seen < c.leastSeen || awake < c.leastWake || awake > c.maxWake {
			t.Errorf("%s: awake for %.3f of the packets and %.3f of the time", c.why, seen, awake)
		}
		// What was there before does not keep it from learning anew.
		if seen, _, _ := lookOver(&v, now, cases[0].gaps...); seen < 0.9 {
			t.Errorf("after %s: awake for %.3f of the packets", c.why, seen)
		}
	}
}

// A thread that wants the processor all the time gets nearly all of it; one
// that wants it now and then costs little.
func TestLookingGivesWay(t *testing.T) {
	t.Parallel()
	var v Account
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
		v.Ban(now)
	}
	if share := awake.Seconds() / now.Sub(start).Seconds(); share > 0.01 {
		t.Errorf("awake for %.3f of the time though others wanted the processor", share)
	}
	now = now.Add(time.Minute)
	banned := time.Duration(0)
	for range 100 {
		now = now.Add(200 * time.Millisecond)
		v.Ban(now)
		banned += v.until.Sub(now)
	}
	if share := banned.Seconds() / (100 * 0.2); share > 0.06 {
		t.Errorf("asleep for %.3f of the time though others wanted the processor seldom", share)
	}
}

// A goroutine that looks for more of a bulk transfer and finds none looks ever
// less, but never not at all; one that gets packets by it soon looks as long as
// before.
func TestBulk(t *testing.T) {
	t.Parallel()
	b := Bulk(0).Came()
	if n := b.Polls(); n != BulkPolls || !b.UnderWay() {
		t.Errorf("%d polls at first", n)
	}
	b = b.Over()
	spent := 0
	for range 100 {
		spent += b.Polls()
		b = b.Failed()
	}
	if n := b.Polls(); n != leastBulkPolls || spent > 2*BulkPolls+100*leastBulkPolls || b.UnderWay() {
		t.Errorf("%d polls after nothing came, %d in all", n, spent)
	}
	b = b.Came()
	for range 8 {
		b = b.Paid()
	}
	if n := b.Polls(); n != BulkPolls || !b.UnderWay() {
		t.Errorf("%d polls after packets came", n)
	}
}
