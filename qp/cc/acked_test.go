package cc

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testshort"
	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// The caller of Acked reads the Limit again only if Acked says that it has
// changed: so Acked must say so each time, whatever happened before.
func TestAckedTellsOfAnotherLimit(t *testing.T) {
	t.Parallel()
	const packet = 1024 + PacketOverhead
	adapter := AdapterProfile(100_000_000_000)
	paced := NewPacer(NewWindow(Config{}))
	paced.SetRate(1_000_000_000, 10_000)
	for name, c := range map[string]Controller{
		"window": NewWindow(Config{}), "static": NewStatic(0, Config{}), "pacer": paced,
		"DCQCN": NewDCQCN(NewWindow(Config{}), &adapter),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, now, una, changes := rand.New(rand.NewPCG(1, 2)), clock.Time(0), uint64(0), 0
			for i := range testshort.Rounds(200_000) {
				now += clock.Time(r.Int64N(2000))
				f := &Flight{Una: una, Next: una + uint64(c.Limit().Bytes), Packet: packet, MinRTT: time.Duration(1+r.IntN(200)) * time.Microsecond}
				f.RTT, f.Pipe = f.MinRTT+time.Duration(r.IntN(100))*time.Microsecond, uint64(r.IntN(2))*(f.Next-una)
				before := c.Limit()
				switch r.IntN(200) {
				case 0:
					c.Lost(now, f, Loss(r.IntN(int(Timeout)+1)))
				case 1:
					c.Marked(now, f, Mark(r.IntN(int(MarkedAgain)+1)))
				case 2:
					c.Sent(now, packet, 1)
				case 3:
					c.Advance(now)
				case 4:
					c.Silence()
				case 5:
					c.Undo()
				default:
					una += packet
					f.Una = una
					changed := c.Acked(now, f, packet)
					if changed != (c.Limit() != before) {
						t.Fatalf("event %d: Acked says %t, and the limit was %+v and is %+v", i, changed, before, c.Limit())
					}
					if changed {
						changes++
					}
				}
			}
			if _, fixed := c.(*Static); fixed != (changes == 0) {
				t.Errorf("the limit changed %d times", changes)
			}
		})
	}
}
