package cc

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

const (
	testLine   = 100_000_000_000
	testPacket = 1024 + PacketOverhead
)

// acked acknowledges a packet after a round trip of that length.
func acked(c Controller, now clock.Time, una *uint64, sample time.Duration) {
	*una += testPacket
	c.Acked(now, &Flight{Una: *una, Next: *una + 10*testPacket, Packet: testPacket, Sample: sample, RTT: sample}, testPacket)
}

// One switch whose link is used to a share, with a queue: the window comes to
// Eta of what would use the link, and W_AI more, in one step for each round
// trip.
func TestHPCCFollowsTheFullestHop(t *testing.T) {
	t.Parallel()
	const rtt = 10 * time.Microsecond // 125,000 bytes at 100 Gb/s
	for _, c := range []struct {
		name           string
		used, queued   uint64 // bytes in a round trip, and in the queue
		stages         int
		want, accuracy uint64 // W after 1 round trip
	}{
		{"twice the link", 125_000, 125_000, -1, 125_000*95/200 + 80, 150},
		{"a full link", 125_000, 0, -1, 125_000*95/100 + 80, 200},
		{"half of the link", 62_500, 0, -1, 125_000, 0},
		{"half of the link, in stages", 62_500, 0, 5, 125_000, 0},
	} {
		h := NewHPCC(HPCCConfig{Line: testLine, RTT: rtt, Stages: c.stages}, Config{MaxBytes: 1 << 20})
		hop := Hop{Rate: testLine, Queued: c.queued, At: 1000}
		h.Hops(0, []Hop{hop, {Rate: 4 * testLine, At: 1000}})
		var una uint64
		acked(h, 0, &una, rtt)
		hop.At += clock.Time(rtt)
		hop.Sent += c.used
		h.Hops(1, []Hop{hop, {Rate: 4 * testLine, At: hop.At, Sent: c.used}})
		acked(h, clock.Time(rtt), &una, rtt)
		if got, u := h.Window(); got > c.want+c.accuracy || got+c.accuracy < c.want {
			t.Errorf("%s: W is %d, with U %.3f; want %d", c.name, got, float64(u)/shareOne, c.want)
		}
	}
}

// The reference moves once in a round trip: acknowledgements in between that
// tell the same do not change the window twice.
func TestHPCCReactsOnce(t *testing.T) {
	t.Parallel()
	h := NewHPCC(HPCCConfig{Line: testLine, RTT: 10 * time.Microsecond, Stages: -1}, Config{MaxBytes: 1 << 20})
	hop := Hop{Rate: testLine, Queued: 125_000}
	una := uint64(0)
	for i := range 5 { // within one window in flight
		hop.At += clock.Time(10 * time.Microsecond)
		hop.Sent += 125_000
		h.Hops(0, []Hop{hop})
		acked(h, clock.Time(i)*1000, &una, 10*time.Microsecond)
	}
	// The reference has not moved, and W follows each acknowledgement from
	// it on.
	if got, _ := h.Window(); h.reference != 125_000 || got < 59_000 || got > 60_000 {
		t.Errorf("the reference is %d, and W %d, within one window in flight, with twice as much as the link holds; want 125,000 and about 59,400", h.reference, got)
	}
	// The rate is that of the window: W in a round trip.
	if l := h.Limit(); l.Rate < 47_000_000_000 || l.Rate > 48_000_000_000 || l.AckPSNs != 1 {
		t.Errorf("%+v", l)
	}
}

// With U below Eta the window grows by W_AI for stages, and then in proportion.
func TestHPCCStages(t *testing.T) {
	t.Parallel()
	h := NewHPCC(HPCCConfig{Line: testLine, RTT: 10 * time.Microsecond, Stages: 3}, Config{MaxBytes: 1 << 20})
	h.window, h.reference, h.in = 10_000, 10_000, shareOne/10
	hop, una, now := Hop{Rate: testLine}, uint64(0), clock.Time(0)
	var grown []uint64
	for range 6 {
		hop.At += clock.Time(10 * time.Microsecond)
		hop.Sent += 12_500 // a tenth
		now += clock.Time(10 * time.Microsecond)
		h.Hops(now, []Hop{hop})
		una += 11 * testPacket // all that was in flight
		before, _ := h.Window()
		acked(h, now, &una, 10*time.Microsecond)
		after, _ := h.Window()
		grown = append(grown, after-before)
	}
	if grown[0] != 0 || grown[1] != 80 || grown[2] != 80 || grown[3] != 80 || grown[4] < 80_000 {
		t.Errorf("W grew by %v bytes", grown)
	}
}

// Swift: at the target the window stays between growth and cuts, whatever the
// window; twice beyond the target it gives way by 0.4.
func TestSwiftAims(t *testing.T) {
	t.Parallel()
	const target = 50 * time.Microsecond
	s := NewSwift(SwiftConfig{Target: target, Hops: 3, Hop: 2 * time.Microsecond, Range: time.Nanosecond}, Config{InitialBytes: 100 * testPacket, MaxBytes: 1 << 20})
	una, now := uint64(0), clock.Time(0)
	if s.Target() != target+6*time.Microsecond {
		t.Errorf("the target is %v", s.Target())
	}
	acked(s, now, &una, 1)
	begun := s.Window()
	for range begun / onePacket { // a round trip below the target: a packet more
		now += 1000
		acked(s, now, &una, target)
	}
	if got := s.Window() - begun; got < onePacket*95/100 || got > onePacket {
		t.Errorf("a round trip has it grow by %.3f packets", float64(got)/onePacket)
	}
	before := s.Window()
	now += clock.Time(time.Millisecond)
	acked(s, now, &una, 2*s.Target())
	if got := before - s.Window(); got < before*39/100 || got > before*41/100 {
		t.Errorf("twice the target takes %d of %d", got, before)
	}
	after := s.Window()
	acked(s, now+1, &una, 2*s.Target()) // too soon
	if s.Window() != after {
		t.Error("two cuts in a round trip")
	}
}

// The part of the target that small windows have: all of Range with a tenth of
// a packet, nothing with 100, and 1/√w between.
func TestSwiftScalesWithFlows(t *testing.T) {
	t.Parallel()
	s := NewSwift(SwiftConfig{Target: 10 * time.Microsecond, Hops: -1, Range: time.Millisecond}, Config{MaxBytes: 1 << 24})
	for _, packets := range []float64{.01, .1, .5, 1, 4, 16, 99, 100, 500} {
		s.window = uint64(packets * onePacket)
		want := (1/math.Sqrt(packets) - .1) / (math.Sqrt(10) - .1)
		want = max(min(want, 1), 0) * float64(time.Millisecond)
		if got := float64(s.Target() - 10*time.Microsecond); math.Abs(got-want) > 100 {
			t.Errorf("%v packets: %v ns more, want %v", packets, got, want)
		}
	}
	for _, n := range []uint64{0, 1, 2, 3, 4, 8, 9, 1 << 60, 1<<60 - 1, math.MaxUint64} {
		if r := root(n); r*r > n || r < math.MaxUint32 && (r+1)*(r+1) <= n {
			t.Errorf("the root of %d is %d", n, r)
		}
	}
}

// Below one packet Swift sends one in a round trip and more, as many as the
// window says.
func TestSwiftBelowAPacket(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Microsecond
	s := NewSwift(SwiftConfig{Target: 5 * time.Microsecond, Hops: -1, Range: 1}, Config{MaxBytes: 1 << 20})
	una, now := uint64(0), clock.Time(0)
	for s.Window() > onePacket/4 {
		now += clock.Time(time.Millisecond)
		acked(s, now, &una, delay)
	}
	between := time.Duration(float64(delay) * onePacket / float64(s.Window()))
	var at []clock.Time
	for range 4 {
		l := s.Limit()
		now = max(now, l.NotBefore)
		if !l.Admits(0, 0, testPacket, 1) || l.Admits(testPacket, 1, testPacket, 1) {
			t.Errorf("%+v", l)
		}
		s.Sent(now, testPacket, 1)
		at = append(at, now)
	}
	for i := range at[1:] {
		if got := at[i+1].Sub(at[i]); got < between-time.Microsecond || got > between+time.Microsecond {
			t.Errorf("%v between packets, want %v", got, between)
		}
	}
}

// Timeouts in a row make the window the smallest; one that was for nothing is
// undone.
func TestSwiftTimeouts(t *testing.T) {
	t.Parallel()
	s := NewSwift(SwiftConfig{}, Config{})
	before, now := s.Window(), clock.Time(0)
	s.Silence()
	s.Lost(now, &Flight{Packet: testPacket}, Timeout)
	if got := s.Window(); got < before/2 || got > before/2+1 {
		t.Errorf("%d after a timeout, of %d", s.Window(), before)
	}
	if s.Undo(); s.Window() != before {
		t.Errorf("%d after Undo, of %d", s.Window(), before)
	}
	for range manyTimeouts {
		now += clock.Time(time.Second)
		s.Lost(now, &Flight{Packet: testPacket}, Timeout)
	}
	if s.Window() != leastPackets {
		t.Errorf("%d after %d timeouts", s.Window(), manyTimeouts)
	}
}

// TIMELY's four cases.
func TestTimelyCases(t *testing.T) {
	t.Parallel()
	const g = 1_000_000_000
	c := NewTimely(NewStatic(0, Config{}), TimelyConfig{Line: 10 * g, Burst: 1})
	una, now := uint64(0), clock.Time(0)
	step := func(rtt time.Duration) int64 {
		now += clock.Time(time.Millisecond)
		before := c.Rate()
		acked(c, now, &una, rtt)
		return int64(c.Rate() - before)
	}
	c.current = 5 * g
	step(100 * time.Microsecond) // the first says nothing
	for i := range 10 {          // a queue that stays
		want := int64(10_000_000)
		if i >= 4 {
			want *= 5
		}
		if got := step(100 * time.Microsecond); got != want {
			t.Errorf("%d: the rate grows by %d, want %d", i, got, want)
		}
	}
	rate := c.Rate()
	// 4 µs more: 0.8 · (7/8 · 4 µs / 20 µs)
	if got, want := step(104*time.Microsecond), -int64(rate*8/10*7*4/8/20); got < want-1000 || got > want+1000 {
		t.Errorf("a queue that grows: %d, want %d", got, want)
	}
	step(40 * time.Microsecond)
	if got := step(49 * time.Microsecond); got != 10_000_000 {
		t.Errorf("below T_low, and growing: %d", got)
	}
	rate = c.Rate()
	if got, want := step(time.Millisecond), -int64(rate*8/10/2); got < want-1000 || got > want+1000 {
		t.Errorf("above T_high: %d, want %d", got, want)
	}
	if l := c.Limit(); l.Rate != c.Rate() || l.Burst == 0 {
		t.Errorf("%+v", l)
	}
}

// hostileHops are what a forger, a switch that was restarted, or a path that
// changes may tell.
func hostileHops(rng *rand.Rand) []Hop {
	wild := func() uint64 { return rng.Uint64() >> rng.UintN(64) }
	hops := make([]Hop, rng.UintN(40))
	for i := range hops {
		hops[i] = Hop{Rate: wild(), Queued: wild(), Sent: wild(), At: clock.Time(wild()), Node: uint32(rng.UintN(2)), Port: uint32(rng.UintN(2))}
		if rng.UintN(4) == 0 {
			hops[i].Rate = 0
		}
		if rng.UintN(4) == 0 {
			hops[i].At = -hops[i].At
		}
	}
	return hops
}

// FuzzLaws: whatever peers, clocks and switches tell, a controller stays within
// its bounds, its numbers do not overflow, and something may go soon.
func FuzzLaws(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, law uint8) {
		rng := rand.New(rand.NewPCG(seed, 7))
		bounds := Config{MaxBytes: 1 + rng.IntN(1<<30), MaxPSNs: 1 + rng.IntN(MaxPSNs)}
		var c Controller
		switch law % 3 {
		case 0:
			p := HPCCConfig{Line: kilo + rng.Uint64N(mostRate-kilo), RTT: 1 + time.Duration(rng.Int64N(int64(time.Second))), Eta: rng.IntN(101), Stages: rng.IntN(9) - 1, Burst: rng.IntN(2)}
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			c = NewHPCC(p, bounds)
		case 1:
			c = NewSwift(SwiftConfig{Target: time.Duration(rng.Int64N(int64(time.Second))), Hops: rng.IntN(256)}, bounds)
		case 2:
			p := TimelyConfig{Line: kilo + rng.Uint64N(mostRate-kilo), Low: time.Duration(rng.Int64N(int64(time.Second))), Burst: rng.IntN(2)}
			if err := p.Check(); err != nil {
				t.Fatal(err)
			}
			c = NewTimely(NewStatic(0, bounds), p)
		}
		now, una := clock.Time(1), uint64(0)
		for range 300 {
			if rng.UintN(2) > 0 { // else at the same time
				now += clock.Time(rng.Int64N(1 << rng.UintN(40)))
			}
			fl := &Flight{Una: una, Next: una + rng.Uint64()>>rng.UintN(64), Packet: 1 + PacketOverhead + rng.IntN(4096),
				Sample: time.Duration(rng.Int64N(1 << 32 >> rng.UintN(32))), RTT: time.Duration(rng.Int64N(1 << 32))}
			switch rng.UintN(8) {
			case 0:
				c.Lost(now, fl, Loss(rng.UintN(uint(Timeout)+1)))
			case 1:
				c.Marked(now, fl, Mark(rng.UintN(3)))
			case 2:
				c.Silence()
			case 3:
				c.Undo()
			case 4:
				c.SetConfig(Config{MaxBytes: 1 + rng.IntN(1<<30), MaxPSNs: 1 + rng.IntN(MaxPSNs)})
			default:
				Tell(c, now, hostileHops(rng))
				n := rng.Uint64() >> rng.UintN(64)
				una += n
				c.Acked(now, fl, n)
			}
			l := c.Limit()
			if l.Bytes < 1 || l.Bytes > l.Max || l.NotBefore < 0 || l.Burst < 0 || l.Rate != 0 && (l.Burst == 0 || l.Rate < kilo) {
				t.Fatalf("%T at %d: %+v", c, now, l)
			}
			if wait := l.NotBefore.Sub(now); wait > 10*time.Second && l.Rate > leastRate {
				t.Fatalf("%T at %d: nothing for %v: %+v", c, now, wait, l)
			}
			if l.Burst > 0 && now >= l.NotBefore {
				c.Sent(now, fl.Packet, 1)
			}
		}
	})
}

// A path that changes, and hops that say nothing, leave the window as it is.
func TestHPCCWithoutMeasurement(t *testing.T) {
	t.Parallel()
	for name, hops := range map[string][3][]Hop{
		"another port":     {{{Rate: testLine, At: 1}}, {{Rate: testLine, At: 2, Sent: 1 << 30, Port: 1}}},
		"another length":   {{{Rate: testLine, At: 1}}, {{Rate: testLine, At: 2, Sent: 1 << 30}, {Rate: testLine, At: 2}}},
		"no hops":          {},
		"no rate":          {{{At: 1}}, {{At: 2, Sent: 1 << 30}}},
		"no time":          {{{Rate: testLine, At: 1}}, {{Rate: testLine, At: 1, Sent: 1 << 30}}},
		"back in time":     {{{Rate: testLine, At: 2}}, {{Rate: testLine, At: 1, Sent: 1 << 30}}},
		"counters of zero": {{{Rate: testLine, At: 1, Sent: 1 << 30}}, {{Rate: testLine, At: 2}}},
	} {
		h := NewHPCC(HPCCConfig{Stages: -1}, Config{})
		before, _ := h.Window()
		una := uint64(0)
		for i, list := range hops {
			h.Hops(0, list)
			acked(h, clock.Time(i), &una, 1)
		}
		if got, _ := h.Window(); got != before {
			t.Errorf("%s: W is %d, was %d", name, got, before)
		}
	}
	// A counter that wraps goes on.
	h := NewHPCC(HPCCConfig{Stages: -1, RTT: 10 * time.Microsecond}, Config{})
	una := uint64(0)
	h.Hops(0, []Hop{{Rate: testLine, At: 1, Sent: math.MaxUint64 - 1000}})
	acked(h, 0, &una, 1)
	h.Hops(0, []Hop{{Rate: testLine, At: 1 + 10_000, Sent: 250_000 - 1001}})
	acked(h, 0, &una, 1)
	if got, u := h.Window(); u < 2*shareOne-2000 || u > 2*shareOne+2000 {
		t.Errorf("W %d, U %.3f", got, float64(u)/shareOne)
	}
}
