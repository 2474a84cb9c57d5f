package world_test

import (
	"context"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// Sixteen programs write 1 MiB each to one host, over cables of 100 Gb/s whose
// share of that is 1.35 ms, with marks from a quarter of the queue on. None is
// late by much, as long as the queue pairs together keep no more in flight than
// a deep queue holds.
func TestIncast(t *testing.T) {
	t.Parallel()
	const senders, size, most = 16, 1 << 20, 2 * time.Millisecond
	for _, queue := range []int64{4 << 20, 1 << 20, 256 << 10} {
		c := star(senders + 1)
		c.Switches[0].Classes[0] = network.Class{EgressMax: queue, RED: network.RED{Kmin: queue / 4, Kmax: queue / 4, Pmax: 1e6}}
		w := newWorld(t, world.Config{Network: c, Device: verbs.Config{MaxWindow: 128 << 10, MinProbe: 320 * time.Microsecond}})
		var last time.Duration
		for i := range senders {
			a, b := boxesOf(simulated{w})
			must(t, w.Go(i+1, func(ctx context.Context, dev *verbs.Device) error {
				_, err := bandwidth(ctx, dev, a, size, 1, 1)
				last = w.Now()
				return err
			}))
			must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error { return target(ctx, dev, b, size) }))
		}
		must(t, w.Run())
		sum := w.Network().Totals()
		t.Logf("%4d KiB of queue: %v, %d packets dropped, %d marked", queue>>10, last, sum.Dropped(), sum.Marks)
		if last > most {
			t.Errorf("%d KiB of queue: the last is done after %v, more than %v", queue>>10, last, most)
		}
	}
}
