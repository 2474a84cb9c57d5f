package network

import (
	"math"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// TestBitErrors: a packet of n bits is spoilt with the chance 1-(1-BER)^n.
func TestBitErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ber  float64
		size uint16
	}{{1e-6, 4224}, {1e-6, 1100}, {1e-4, 84}, {1e-5, 65535}, {1e-3, 4224}, {0.5, 84}, {1, 84}, {3e-9, 65535}} {
		c := Cable{BER: uint64(test.ber * quintillion)}
		n := c.newNoise(1, 0)
		const tries = 2_000_000
		spoilt := 0
		for range tries {
			if n.spoils(test.size) {
				spoilt++
			}
		}
		p := -math.Expm1(float64(test.size-20) * 8 * math.Log1p(-test.ber))
		want, sigma := p*tries, math.Sqrt(p*(1-p)*tries)
		if math.Abs(float64(spoilt)-want) > 5*sigma+1e-6 {
			t.Errorf("BER %g, %d bytes: %d of %d are spoilt; want %.0f, give or take %.0f", test.ber, test.size, spoilt, tries, want, sigma)
		}
	}
	// The least that can be told apart is near what it should be.
	n := (&Cable{BER: 1000}).newNoise(1, 0)
	all := 0.0
	for i := range maxBits {
		got, want := float64(-n.right[i])/math.Exp2(64), math.Exp2(float64(i))*1e-15
		if math.Abs(got/want-1) > 0.001 {
			t.Errorf("of 2^%d bits one is wrong with %g; want %g", i, got, want)
		}
		all += got
	}
	if all == 0 {
		t.Error("nothing is wrong ever")
	}
}

// TestBursts: as many packets are lost as Loss says, and in bursts as long as
// Burst says.
func TestBursts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		loss  float64
		burst uint32
	}{{0.01, 2}, {0.01, 50}, {0.5, 2}, {0.6, 8}, {0.004, 100}} {
		c := Cable{Rate: 1e9, Loss: uint32(test.loss * billion), Burst: test.burst}
		if err := c.check(); err != nil {
			t.Fatal(err)
		}
		n := c.newNoise(7, 3)
		const tries = 20_000_000
		lost, bursts, before := 0, 0, false
		for range tries {
			now := n.loses()
			if now {
				lost++
				if !before {
					bursts++
				}
			}
			before = now
		}
		if share := float64(lost) / tries; math.Abs(share/test.loss-1) > 0.25 {
			t.Errorf("%+v: %g are lost", test, share)
		}
		if mean := float64(lost) / float64(bursts); math.Abs(mean/float64(test.burst)-1) > 0.25 {
			t.Errorf("%+v: %g are lost at once", test, mean)
		}
	}
	for want, c := range map[string]Cable{
		"of 1e18": {BER: quintillion + 1}, "at most 1000000": {Burst: million + 1}, "then at most 2 of 3": {Loss: 7 * billion / 10, Burst: 2},
	} {
		c.Rate = gbit
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
}

// TestCorruptedPackets: a packet that a cable has spoilt is dropped where it
// comes to by a switch that stores it. One that cuts through sends it on, and
// the next node drops it.
func TestCorruptedPackets(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		sw := Switch{Buffer: 4 << 20, CutThrough: cut}
		c := Config{Hosts: 2, Switches: []Switch{sw}, Tables: []Table{{Set: []uint16{0, 1}, Sets: [][]uint16{{0}, {1}}}}, Seed: 5}
		for h := range 2 {
			c.Cables = append(c.Cables, Cable{A: h, B: 2, Rate: 100 * gbit, Delay: event.Microsecond})
		}
		c.Cables[0].BER = quintillion / 100_000 // a packet of 4224 bytes has 34k bits
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		n.Attach(0, &flood{n: n, r: event.NewRand(1, 1), left: 1000, to: []uint16{1}})
		n.Kick(0, 0)
		finish(t, n)
		total := n.Totals()
		if lost := total.Drops[Corrupted]; lost < 150 || lost > 350 || total.Dropped() != lost {
			t.Errorf("cut-through %v: %d packets are corrupted, %d dropped", cut, lost, total.Dropped())
		}
		if got := n.Port(2, 1).Link().Packets; (got == 1000) != cut {
			t.Errorf("cut-through %v: the switch has sent on %d", cut, got)
		}
	}
}
