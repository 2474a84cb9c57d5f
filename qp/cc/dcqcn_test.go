package cc

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

const us = clock.Time(time.Microsecond)

// state is what DCQCN shows of itself.
type state struct {
	current, target uint64
	alpha           uint32
}

// dcqcnScript is events with what they must lead to, computed by hand.
type dcqcnScript struct {
	t *testing.T
	d *DCQCN
}

func newScript(t *testing.T, p Profile) *dcqcnScript {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return &dcqcnScript{t, NewDCQCN(NewStatic(1<<20, Config{MaxBytes: 1 << 20, MaxPSNs: 1 << 12}), &p)}
}

func (s *dcqcnScript) mark(at clock.Time, why string, want state) {
	s.t.Helper()
	before := s.d.current
	if less := s.d.Marked(at, &Flight{}, Notified); less != (s.d.current < before) {
		s.t.Errorf("%s: Marked returns %v, from %d to %d", why, less, before, s.d.current)
	}
	s.want(at, why, want)
}

// send sends one packet, with bytes as they count for the rate.
func (s *dcqcnScript) send(at clock.Time, bytes int, why string, want state) {
	s.t.Helper()
	s.d.Sent(at, bytes-WireOverhead+PacketOverhead, 1)
	s.want(at, why, want)
}

func (s *dcqcnScript) wait(at clock.Time, why string, want state) {
	s.t.Helper()
	s.d.Advance(at)
	s.want(at, why, want)
}

func (s *dcqcnScript) want(at clock.Time, why string, want state) {
	s.t.Helper()
	if got := (state{s.d.current, s.d.target, s.d.alpha}); got != want {
		s.t.Errorf("at %v, %s: %+v, want %+v", time.Duration(at), why, got, want)
	}
}

// The paper's rules, at 40 Gb/s. 1 is 2^30 in alpha: 1073741824. With g = 1/256
// alpha decays by alpha*1020/1024 (1 becomes 1069547520) and grows by that and
// 4194304.
func TestDCQCNOfThePaper(t *testing.T) {
	t.Parallel()
	const one, m, g = 1 << 30, 1_000_000, 1_000_000_000
	s := newScript(t, PaperProfile(40*g))
	s.wait(1000*us, "nothing happens without a notification", state{40 * g, 40 * g, 0})
	if l := s.d.Limit(); l != s.d.Controller.Limit() {
		t.Errorf("it is paced before the first notification: %+v", l)
	}
	// Cuts: alpha 1 halves; alpha stays 1, as 1*1020/1024 + 4/1024 = 1.
	s.mark(1000*us, "the first cut", state{20 * g, 40 * g, one})
	s.mark(1050*us, "the second cut, and the target is clamped", state{10 * g, 20 * g, one})
	// Fast recovery, each 55 µs: half of the way. Alpha is only made up for
	// with the next cut.
	s.wait(1104*us, "before the timer", state{10 * g, 20 * g, one})
	s.wait(1105*us, "T=1", state{15 * g, 20 * g, one})
	s.wait(1270*us, "T=2, 3, 4", state{19375 * m, 20 * g, one})
	// T=5 is not below F=5 any more: additive increase. (19375+20040)/2.
	s.wait(1325*us, "T=5", state{19_707_500_000, 20_040 * m, one})
	s.wait(1380*us, "T=6", state{19_893_750_000, 20_080 * m, one})
	// Alpha decays at 1105, 1160 … 1380: six times. 1069547520, 1065369600,
	// 1061208000, 1057062656, 1052933505, 1048820483. The cut is by
	// 1048820483/2^31 of 19893.75 Mb/s: 9716009946. Then alpha =
	// 1048820483*1020/1024 + 4194304 = 1048917831.
	s.mark(1381*us, "a cut after decay", state{10_177_740_054, 19_893_750_000, 1048917831})
	// The timers begin anew with it, and so does alpha's.
	s.wait(1435*us, "the timer began anew", state{10_177_740_054, 19_893_750_000, 1048917831})
	s.wait(1436*us, "T=1", state{15_035_745_027, 19_893_750_000, 1048917831})
}

// The byte counter, hyper increase, the least rate and the rate of the port.
func TestDCQCNStages(t *testing.T) {
	t.Parallel()
	const one, m, g = 1 << 30, 1_000_000, 1_000_000_000
	p := PaperProfile(40 * g)
	p.IncreaseBytes, p.Threshold, p.CutPeriod = 10_000, 2, 0
	s := newScript(t, p)
	s.mark(0, "a cut", state{20 * g, 40 * g, one})
	s.send(us, 9_999, "a byte is missing", state{20 * g, 40 * g, one})
	s.send(us, 1, "BC=1", state{30 * g, 40 * g, one})
	s.send(us, 10_000, "BC=2: additive, and the target is that of the port", state{35 * g, 40 * g, one})
	s.mark(2*us, "a cut clears both counters", state{17_500 * m, 35 * g, one})
	s.send(3*us, 9_999, "and the bytes", state{17_500 * m, 35 * g, one})
	s.wait(57*us, "T=1", state{26_250 * m, 35 * g, one})
	s.send(58*us, 20_001, "BC=1, 2, 3: fast, additive, additive", state{33_956_250_000, 35_080 * m, one})
	s.wait(112*us, "T=2, BC=3: additive", state{34_538_125_000, 35_120 * m, one})
	s.wait(167*us, "T=3, BC=3: hyper, 1", state{34_929_062_500, 35_320 * m, one})
	s.wait(222*us, "T=4, BC=3: hyper, 1", state{35_224_531_250, 35_520 * m, one})
	s.send(223*us, 9_999, "", state{35_224_531_250, 35_520 * m, one})
	s.send(223*us, 1, "T=4, BC=4: hyper, 2", state{35_572_265_625, 35_920 * m, one})

	// To the least rate, and back to that of the port, where it ends.
	for range 13 {
		s.d.Marked(224*us, &Flight{}, Notified)
	}
	s.want(224*us, "no less", state{p.Min, p.Min, s.d.alpha})
	s.wait(clock.Time(time.Second), "back", state{40 * g, 40 * g, s.d.alpha})
	if l := s.d.Limit(); l.Burst != 0 || l.Deadline != 0 || l.Rate != 0 {
		t.Errorf("at the rate of the port it paces: %+v", l)
	}
}

// What adapters do else: alpha is looked at each microsecond, there is one cut
// in 4 µs, and the target is clamped only after an increase.
func TestDCQCNOfAdapters(t *testing.T) {
	t.Parallel()
	const g = 1_000_000_000
	s := newScript(t, AdapterProfile(100*g))
	// 1023/1024 is 1072693248; half of it of 100 Gb/s is 49951171875.
	s.mark(10*us, "the first cut", state{50_048_828_125, 100 * g, 1072693248})
	// Alpha: a notification came in the period that ends at 11 µs (that of
	// 10 µs): 1072693248*1019/1024 + 5242880 = 1072698368. None came in
	// that to 12 µs: *1019/1024 = 1067460583.
	s.mark(12*us, "a notification within 4 µs waits", state{50_048_828_125, 100 * g, 1067460583})
	// At 13 µs 1067460583*1019/1024 + 5242880 = 1067491253, at 14 µs
	// *1019/1024 = 1062278893. 1062278893/2^31 of the rate are 24757261265.
	s.wait(14*us, "and takes effect at their end", state{25_291_566_860, 100 * g, 1062278893})
	s.wait(313*us, "the increase begins with the second cut", state{25_291_566_860, 100 * g, 1062278893})
	s.wait(314*us, "T=1: additive, up to the port", state{62_645_783_430, 100 * g, 1062278893})
	grown := s.d.current
	s.d.Marked(320*us, &Flight{}, Notified)
	if s.d.target != grown {
		t.Errorf("after an increase the target is %d, not the rate %d", s.d.target, grown)
	}
	s.d.Marked(330*us, &Flight{}, Notified)
	if s.d.target != grown {
		t.Errorf("without an increase the target is clamped to %d", s.d.target)
	}
}

// Whatever happens, the rate is between the least and that of the port, the
// target is not below it but for the least rate, and the deadline moves on.
// What is made up for later is what step by step would have been.
func TestDCQCNHolds(t *testing.T) {
	t.Parallel()
	for seed := range testshort.Rounds[uint64](200) {
		rng := rand.New(rand.NewPCG(seed, 13))
		p := PaperProfile(1 + rng.Uint64N(1<<40)>>rng.UintN(30))
		if seed%2 == 0 {
			p = AdapterProfile(p.Line)
		}
		p.Line = max(p.Line, kilo)
		p.Min, p.Additive, p.Hyper = min(p.Min, p.Line), min(p.Additive, p.Line), min(p.Hyper, p.Line)
		p.Burst = 1 << rng.UintN(20)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		window := func() Controller { return NewStatic(0, Config{}) }
		late, prompt := NewDCQCN(window(), &p), NewDCQCN(window(), &p)
		now := clock.Time(0)
		for range 300 {
			step := clock.Time(rng.Int64N(1 << (4 + rng.UintN(18))))
			for at := now; at < now+step && step < 1<<16; at += 500 { // the other one is looked at often
				prompt.Advance(at)
			}
			now += step
			switch rng.UintN(4) {
			case 0:
				late.Marked(now, &Flight{}, Notified)
				prompt.Marked(now, &Flight{}, Notified)
			case 1:
				late.Advance(now)
				prompt.Advance(now)
			default:
				n := rng.IntN(4096)
				late.Sent(now, n+PacketOverhead, 1)
				prompt.Sent(now, n+PacketOverhead, 1)
			}
			if late.current != prompt.current || late.target != prompt.target {
				t.Fatalf("seed %d: %d of %d, and step by step %d of %d", seed, late.current, late.target, prompt.current, prompt.target)
			}
			if a, b := late.Limit(), prompt.Limit(); a != b && (a.NotBefore > now || b.NotBefore > now) {
				t.Fatalf("seed %d: %+v, and step by step %+v", seed, a, b)
			}
			if c := late.current; c < p.Min || c > p.Line || late.target > p.Line || late.target < c || late.alpha > alphaOne {
				t.Fatalf("seed %d: rate %d, target %d, alpha %d", seed, c, late.target, late.alpha)
			}
			l := late.Limit()
			if late.paced() != (l.Burst > 0) || l.Rate != 0 && l.Rate != late.current || l.Deadline != 0 && (l.Deadline <= now || l.Deadline > l.NotBefore) {
				t.Fatalf("seed %d at %d: %+v", seed, now, l)
			}
		}
	}
}

// A burst that waits may go earlier when the rate has grown, and the deadline
// says when to look. In any time no more goes than the rate and a burst.
func TestDCQCNPaces(t *testing.T) {
	t.Parallel()
	const g = 1_000_000_000
	p := PaperProfile(10 * g)
	p.Burst, p.CutPeriod = 1, 0
	d := NewDCQCN(NewStatic(0, Config{}), &p)
	for range 7 { // the target is 156.25 Mb/s
		d.Marked(0, &Flight{}, Notified)
	}
	const packet = 4096
	d.Sent(0, packet+PacketOverhead, 1)
	l := d.Limit()
	// At 55 µs half of the way to the target is made, and so on: what is
	// missing goes at 100 Mb/s for the first 55 µs, at 128.125 for the
	// next, at 142.1875, at 149.21875, and the rest at 152.734375.
	left, at := uint64(8*(packet+WireOverhead)), clock.Time(0)
	for _, rate := range []uint64{100_000, 128_125, 142_187, 149_218} { // b/ms
		left -= rate * 55 / 1000
		at += 55 * us
	}
	want := at + clock.Time(left*1_000_000/152_734)
	if l.NotBefore > want || l.NotBefore < want-100 || l.Deadline != l.NotBefore || l.Rate != p.Min || l.Burst != 1 || l.Smooth {
		t.Fatalf("%+v, want %d", l, want)
	}
	d.Advance(100 * us)
	if now := d.Limit(); now.Rate <= l.Rate || now.NotBefore != l.NotBefore {
		t.Errorf("%+v, said before: %d", now, l.NotBefore)
	}
	d.Advance(l.Deadline)
	if now := d.Limit(); now.NotBefore > l.Deadline {
		t.Errorf("at the deadline it goes on to wait: %+v", now)
	}

	// Against a bound from the rates themselves.
	rng := rand.New(rand.NewPCG(1, 2))
	now, sent, may := d.Limit().NotBefore, 0.0, 0.0
	for range 20_000 {
		l := d.Limit()
		next := max(now, l.NotBefore)
		if l.Deadline != 0 {
			next = min(next, l.Deadline)
		}
		if l.Burst == 0 {
			next = now + 8*(packet+WireOverhead)/10
		}
		may += float64(d.current) / 8 * float64(next-now) / 1e9
		if now = next; now < l.NotBefore {
			d.Advance(now)
			continue
		}
		if rng.UintN(200) == 0 {
			d.Marked(now, &Flight{}, Notified)
		}
		d.Sent(now, packet+PacketOverhead, 1)
		sent += packet + WireOverhead
	}
	if math.Abs(sent-may) > may/1000+2*packet {
		t.Errorf("%.0f bytes in %v, %.0f may go", sent, time.Duration(now), may)
	}
}

// Marks that the peer gets no notification for change nothing, and a reset
// begins anew.
func TestDCQCNIgnores(t *testing.T) { // not parallel: it counts allocations
	p := AdapterProfile(0)
	d := NewDCQCN(NewWindow(Config{}), &p)
	if d.Marked(0, &Flight{}, MarkedAgain) || d.current != defaultLine {
		t.Error("it takes every marked response")
	}
	size := d.Limit().Bytes
	if !d.Marked(0, &Flight{}, MarkedResponse) || d.Limit().Bytes != size {
		t.Error("a mark is for the rate, and not for the window")
	}
	if !d.Lost(0, &Flight{Packet: 1000}, Timeout) || d.Limit().Bytes >= size || d.current >= defaultLine {
		t.Error("a loss is for the window, and not for the rate")
	}
	d.Reset()
	if l := d.Limit(); l.Bytes != size || l.Burst != 0 || d.active {
		t.Errorf("after Reset: %+v", l)
	}
	if n := testing.AllocsPerRun(100, func() { d.Marked(0, &Flight{}, Notified); d.Sent(0, 1000, 1); d.Advance(5); d.Limit() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A bad profile is refused, and the error says what is wrong.
func TestProfileCheck(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Profile){
		"Line":           func(p *Profile) { p.Line = 0 },
		"Min":            func(p *Profile) { p.Min = p.Line + 1 },
		"G":              func(p *Profile) { p.G = 1024 },
		"InitialAlpha":   func(p *Profile) { p.InitialAlpha = 1025 },
		"AlphaPeriod":    func(p *Profile) { p.AlphaPeriod = -1 },
		"Shift":          func(p *Profile) { p.Shift = 11 },
		"MaxCut":         func(p *Profile) { p.MaxCut = 0 },
		"CutPeriod":      func(p *Profile) { p.CutPeriod = -time.Second },
		"IncreasePeriod": func(p *Profile) { p.IncreasePeriod = 0 },
		"Threshold":      func(p *Profile) { p.Threshold = 0 },
		"Additive":       func(p *Profile) { p.Additive = 0 },
		"Hyper":          func(p *Profile) { p.Hyper = p.Line + 1 },
		"Burst":          func(p *Profile) { p.Burst = -1 },
	} {
		p := PaperProfile(0)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if err := p.Check(); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), " "+name+" is ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// However large the window is, acknowledgements are asked for often enough that
// the peer is not taken for silent.
func TestAckInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why  string
		l    Limit
		want uint32
	}{
		{"a quarter of the window", Limit{Bytes: 1 << 20, PSNs: 1 << 12}, 186},
		{"a quarter of the PSNs", Limit{Bytes: 1 << 20, PSNs: 128}, 32},
		{"one at least", Limit{Bytes: 3000, PSNs: 128}, 1},
		{"a bound", Limit{Bytes: 8 << 20, PSNs: 1 << 12, AckPSNs: 16}, 16},
		{"64 µs of 5 Gb/s, 40000 bytes", Limit{Bytes: 8 << 20, PSNs: 1 << 12, Smooth: true, Rate: 5e9}, 28},
		{"one at the least", Limit{Bytes: 8 << 20, PSNs: 1 << 12, Smooth: true, Rate: 1e8}, 1},
		{"where bursts end with one, the rate does not count", Limit{Bytes: 1 << 20, PSNs: 1 << 12, Rate: 1e8}, 186},
	} {
		if got := c.l.AckInterval(1408); got != c.want {
			t.Errorf("%s: %d packets, want %d", c.why, got, c.want)
		}
	}
	p := PaperProfile(0)
	if n := NewDCQCN(NewWindow(Config{MaxBytes: 8 << 20, InitialBytes: 8 << 20, MaxPSNs: 1 << 14}), &p).Limit(); n.AckInterval(1408) != ackPSNs {
		t.Errorf("DCQCN asks after %d packets", n.AckInterval(1408))
	}
}

// A static window stays what it is, within the bounds.
func TestStatic(t *testing.T) {
	t.Parallel()
	s := NewStatic(100_000, Config{MaxBytes: 1 << 20, MaxPSNs: 64})
	want := Limit{Bytes: 100_000, Max: 100_000, PSNs: 64, AckPSNs: ackPSNs}
	f := Flight{Packet: 1000, Next: 5000}
	if s.Lost(0, &f, Timeout) || s.Marked(0, &f, Notified) || s.Acked(0, &f, 5000) || s.Limit() != want {
		t.Errorf("%+v", s.Limit())
	}
	s.SetConfig(Config{MaxBytes: 50_000, MaxPSNs: 32})
	if l := s.Limit(); l.Bytes != 50_000 || l.PSNs != 32 {
		t.Errorf("%+v", l)
	}
	if l := NewStatic(0, Config{MaxBytes: 70_000}).Limit(); l.Bytes != 70_000 {
		t.Errorf("%+v", l)
	}
}
