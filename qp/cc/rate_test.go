package cc

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// sends drives a rate with packets of so many bytes until d has passed, with a
// timer that is late by up to late, and calls sent for each packet.
func sends(r *Rate, rng *rand.Rand, now clock.Time, d, late time.Duration, size func() int, sent func(clock.Time, int)) {
	for end := now.Add(d); now < end; {
		room, at := r.Next()
		if now < at {
			now = at
			if late > 0 {
				now = now.Add(time.Duration(rng.Int64N(int64(late))))
			}
			continue
		}
		for n := 0; ; {
			payload := size()
			n += payload + WireOverhead
			r.Sent(now, payload, 1)
			sent(now, payload+WireOverhead)
			if n >= room {
				break
			}
		}
	}
}

// A rate is exact to 1 % over a second, whatever the size of the packets and
// however late the timer, as long as that is less than the burst lasts. In no
// span of time is there more than the rate gives, a burst and a packet.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		perSecond uint64
		burst     int
		late      time.Duration
	}{
		{1_000_000, 0, 0}, {1_000_000, 20_000, 10 * time.Millisecond}, {64_000, 0, 0}, {1000, 1, 0},
		{100_000_000, 0, time.Millisecond}, {10_000_000_000, 0, time.Millisecond},
		{999_999_937, 9000, 0}, {40_000_000_000, 1 << 20, 50 * time.Microsecond},
	} {
		rng := rand.New(rand.NewPCG(c.perSecond, 7))
		var r Rate
		r.Set(c.perSecond, c.burst)
		if !r.On() {
			t.Fatal("a rate is off")
		}
		d := time.Second
		if c.perSecond < 1_000_000 {
			d = 1e6 * time.Second / time.Duration(c.perSecond/1000) // a few thousand packets
		}
		if c.perSecond > 1_000_000_000 {
			d /= 20
		}
		start := clock.Time(rng.Int64N(1 << 50))
		total := 0.0
		// The bucket, as a float: what is in it when the last packet
		// has gone.
		bucket, last := float64(r.burst), start
		sends(&r, rng, start, d, c.late, func() int { return rng.IntN(4097) }, func(now clock.Time, n int) {
			total += float64(n)
			bucket = min(float64(r.burst), bucket+float64(now-last)*float64(c.perSecond)/8e9)
			bucket, last = bucket-float64(n), now
			if bucket < -(4096+WireOverhead)-1 {
				t.Fatalf("%d b/s: %.0f bytes more than a burst and a packet", c.perSecond, -bucket)
			}
		})
		want := d.Seconds() * float64(c.perSecond) / 8
		if miss := math.Abs(total-want) - float64(r.burst) - 4096 - WireOverhead; miss > want/100 {
			t.Errorf("%d b/s, burst %d: %.0f bytes, want %.0f", c.perSecond, r.burst, total, want)
		}
	}
}

// A rate of 0 is none; the greatest one does not overflow; a READ of the
// greatest size is paid for in full.
func TestRateBounds(t *testing.T) {
	t.Parallel()
	var r Rate
	if r.Set(0, 5); r.On() {
		t.Error("a rate of 0 is on")
	}
	for _, per := range []uint64{1000, math.MaxUint32 * 1000} {
		for _, burst := range []int{0, 1, math.MaxInt32} {
			r.Set(per, burst)
			const packets = 1 << 22
			r.Sent(0, 1<<30, packets)
			_, at := r.Next()
			takes := float64(1<<30+packets*WireOverhead) * 8e9 / float64(per)
			if got := float64(r.full); math.Abs(got-takes) > takes/1e6+1 {
				t.Errorf("%d b/s: it takes %g ns, want %g", per, got, takes)
			}
			if at > r.full || at < 0 {
				t.Errorf("%d b/s, burst %d: the next goes at %d, and the bucket is full at %d", per, burst, at, r.full)
			}
		}
	}
}

// A Pacer narrows the limit of a window and changes nothing else of it, and
// joins the rate of a controller that has one.
func TestPacer(t *testing.T) {
	t.Parallel()
	w := NewWindow(Config{MaxBytes: 1 << 20})
	p := NewPacer(w)
	if p.Limit() != w.Limit() {
		t.Error("a pacer without a rate changes the limit")
	}
	p.SetRate(8_000_000, 10_000) // a byte in 1 µs
	want := w.Limit()
	want.Burst, want.Rate = 10_000, 8_000_000
	if p.Limit() != want {
		t.Errorf("limit %+v, want %+v", p.Limit(), want)
	}
	p.Sent(0, 9000+4*PacketOverhead, 4)
	want.Burst = 1000 - 4*WireOverhead
	if p.Limit() != want {
		t.Errorf("limit %+v, want %+v", p.Limit(), want)
	}
	p.Sent(0, 1000+PacketOverhead, 1)
	want.Burst = 5000
	want.NotBefore = clock.Time(5*time.Millisecond + 5*WireOverhead*time.Microsecond)
	if p.Limit() != want {
		t.Errorf("limit %+v, want %+v", p.Limit(), want)
	}
	changed := p.Acked(0, &Flight{Una: 5000, Next: 5000, Packet: 1408}, 5000)
	if grown := p.Limit(); !changed || grown.Bytes != want.Bytes+5000 || grown.Burst != 5000 || grown.NotBefore != want.NotBefore {
		t.Errorf("after an acknowledgement the limit is %+v", grown)
	}
	outer := NewPacer(p)
	outer.SetRate(1_000_000, 100)
	if l := outer.Limit(); l.Burst != 100 || l.NotBefore != want.NotBefore {
		t.Errorf("of two rates the limit is %+v", l)
	}
	outer.Sent(clock.Time(time.Second), 100+PacketOverhead, 1)
	if l := p.Limit(); l.Burst != 10_000-100-WireOverhead || l.NotBefore != 0 {
		t.Errorf("the inner one did not hear of it: %+v", l)
	}
	p.Reset()
	if l := p.Limit(); l.Burst != 10_000 {
		t.Errorf("after Reset: %+v", l)
	}
}
