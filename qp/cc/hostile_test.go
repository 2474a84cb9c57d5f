package cc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// A flood of forged notifications does what one in a period does, and nothing
// more: the same rate at the same time. When it ends, the rate comes back.
func TestDCQCNFlood(t *testing.T) {
	t.Parallel()
	const g = 1_000_000_000
	for _, c := range []struct {
		p           Profile
		floor, back time.Duration // to the least rate; and to 99 % of the port's
	}{
		{PaperProfile(40 * g), 400 * time.Microsecond, 54_610 * time.Microsecond},
		{AdapterProfile(40 * g), 60 * time.Microsecond, 2100 * time.Microsecond},
	} {
		window := func() Controller { return NewStatic(0, Config{}) }
		flood, fair := NewDCQCN(window(), &c.p), NewDCQCN(window(), &c.p)
		period, now, floor := clock.Time(c.p.CutPeriod), clock.Time(0), clock.Time(0)
		if c.p.Sampled {
			period = clock.Time(c.p.AlphaPeriod)
		}
		for ; now < 10*clock.Time(time.Millisecond); now += 100 {
			flood.Marked(now, &Flight{}, Notified)
			if now%period == 0 {
				fair.Marked(now, &Flight{}, Notified)
				if flood.current != fair.current || flood.target != fair.target {
					t.Fatalf("at %v: the flood has the rate at %d, one in %v at %d", time.Duration(now), flood.current, time.Duration(period), fair.current)
				}
			}
			if floor == 0 && flood.current == c.p.Min {
				floor = now
			}
		}
		end := now
		for ; flood.current < c.p.Line/100*99 && now < end+clock.Time(time.Second); now += 1000 {
			flood.Advance(now)
		}
		if back := time.Duration(now - end).Truncate(10 * time.Microsecond); time.Duration(floor) != c.floor || back != c.back {
			t.Errorf("%v to the least rate, and %v back; want %v and %v", time.Duration(floor), back, c.floor, c.back)
		}
	}
}

// However low the rate is, a burst takes no longer than a millisecond of it, or
// is one packet: answers to READs come often enough that the peer does not take
// them for lost.
func TestDCQCNBurstShrinks(t *testing.T) {
	t.Parallel()
	p := AdapterProfile(100_000_000_000)
	d := NewDCQCN(NewStatic(0, Config{}), &p)
	now, most := clock.Time(0), time.Duration(0)
	const packet = 4096
	for d.current > p.Min {
		now += clock.Time(p.CutPeriod)
		d.Marked(now, &Flight{}, Notified)
	}
	for range 40 { // kept down by a notification in each period
		l := d.Limit()
		if l.Burst > int(max(l.Rate/8000, 1)) {
			t.Fatalf("a burst of %d bytes at %d b/s", l.Burst, l.Rate)
		}
		from := now
		for now < l.NotBefore {
			now += clock.Time(p.CutPeriod)
			d.Marked(now, &Flight{}, Notified)
			l = d.Limit()
		}
		most = max(most, time.Duration(now-from))
		for sent := 0; sent == 0 || sent < l.Burst; sent += packet {
			d.Sent(now, packet+PacketOverhead, 1)
		}
	}
	if want := time.Duration(8*(packet+WireOverhead)) * time.Microsecond; most < want-time.Millisecond || most > want+time.Millisecond {
		t.Errorf("%v between bursts, want %v, which a packet takes", most, want)
	}
	// What a large burst had taken before a cut is no debt after it.
	p = PaperProfile(1_000_000_000)
	p.Min, p.CutPeriod = 1_000_000, 0
	d = NewDCQCN(NewStatic(0, Config{}), &p)
	d.Marked(0, &Flight{}, Notified)
	for range 14 {
		d.Sent(0, packet+PacketOverhead, 1)
	}
	for d.current > p.Min {
		d.Marked(0, &Flight{}, Notified)
	}
	if at := time.Duration(d.Limit().NotBefore); at > 2*time.Millisecond {
		t.Errorf("after %d bytes at 1 Gb/s nothing goes for %v", 14*packet, at)
	}
}

// The arithmetic holds for whatever a choice may say.
func FuzzChoice(f *testing.F) {
	for _, text := range []string{
		"window", "static,bytes=120K", "dcqcn,line=1G,ai=1M,hai=5M,min=1k,burst=1024M", "dcqcn-adapter,line=17000G,burst=1",
		"dcqcn,min=1,burst=1G", "dcqcn,line=1k,min=1k,ai=1,hai=1", "dcqcn,line=10G,line=1k",
	} {
		f.Add(text, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		c, err := ParseChoice(text)
		if err != nil {
			if !errors.Is(err, ErrChoice) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		maker, err := c.Maker()
		if err != nil {
			t.Fatal(err)
		}
		if maker == nil {
			return
		}
		checkArithmetic(t, maker(Config{}), seed)
	})
}

// checkArithmetic has a controller count for a while, with steps and bytes of
// all sizes.
func checkArithmetic(t *testing.T, control Controller, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	now := clock.Time(0)
	for range 200 {
		now += clock.Time(rng.Int64N(1 << rng.UintN(40)))
		before := control.Limit()
		switch rng.UintN(5) {
		case 0:
			control.Marked(now, &Flight{}, Notified)
		case 1:
			control.Advance(now)
		default:
			packets := 1 + rng.IntN(1<<rng.UintN(18))
			control.Sent(now, packets*(4096+PacketOverhead), packets)
		}
		l := control.Limit()
		if l.NotBefore < 0 || l.NotBefore > 2*never || l.Burst < 0 || l.Deadline < 0 || l.Rate != 0 && l.Burst == 0 || l.Deadline > l.NotBefore {
			t.Fatalf("at %d: %+v, after %+v", now, l, before)
		}
	}
}

// What a least rate must be is said, as it is written.
func TestChoiceOfNoRate(t *testing.T) {
	t.Parallel()
	if _, err := ParseChoice("dcqcn,min=1,burst=1G"); err == nil {
		t.Error("a rate of 1 b/s is taken")
	}
	_, err := ParseChoice("dcqcn,min=1")
	if want := "min is 1, in bits per second: it takes 1000 to 100000000000, which is line"; err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %s", err, want)
	}
	var r Rate // set without a profile
	r.Set(1, 1<<30)
	for range 4 {
		r.Sent(0, 1<<30, 1)
	}
	if n, at := r.Next(); n <= 0 || at != never-r.depth/2 {
		t.Errorf("%d bytes at %d", n, at)
	}
	r.Change(5, 1<<44, 1<<30)
	if n, at := r.Next(); n <= 0 || at < 0 {
		t.Errorf("%d bytes at %d", n, at)
	}
}
