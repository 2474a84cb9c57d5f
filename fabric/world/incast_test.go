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
// share of that is 1.35 ms, with marks from a quarter of the queue on. The
// first windows, 2 MiB together, do not fit into the small queues.
//
// A receiver that says of marks every 4 µs, as adapters do, has the windows
// small enough for what is lost to come through: in the mean of some sizes of
// the queue none is late by much, with the default window, too. Once in 50 µs,
// as in the paper of DCQCN and by default, is once in two round trips through a
// queue of 256 KiB. Meanwhile each window grows by a packet in each, so a
// quarter less for each notification leaves 32 KiB of every queue pair: twice
// the queue. It stays full, and a queue pair whose first window was lost has
// its probes lost there as well; they come after 320, 640 and 1280 µs, the last
// one when the link has long been idle.
func TestIncast(t *testing.T) {
	t.Parallel()
	const often, seldom = 4 * time.Microsecond, 50 * time.Microsecond
	for _, c := range []struct {
		queue  int64
		notify time.Duration
		window int
		most   time.Duration
	}{
		{4 << 20, often, 0, 1500 * time.Microsecond},
		{1 << 20, often, 0, 1500 * time.Microsecond},
		{256 << 10, often, 0, 1700 * time.Microsecond},
		{4 << 20, seldom, 0, 1500 * time.Microsecond},
		{1 << 20, seldom, 0, 1500 * time.Microsecond},
		{256 << 10, seldom, 0, 2200 * time.Microsecond},
		{256 << 10, seldom, 128 << 10, 1650 * time.Microsecond},
	} {
		sizes := 1
		if c.queue == 256<<10 {
			sizes = 24 // which probe is lost is chance
		}
		var last time.Duration
		var sum network.Totals
		for i := range sizes {
			l, s := incast(t, c.queue+int64(i)<<10, verbs.Config{NotifyInterval: c.notify, MaxWindow: c.window})
			last, sum = last+l/time.Duration(sizes), s
		}
		t.Logf("%4d KiB of queue, notified after %v, window %d: %v, %d packets dropped, %d marked",
			c.queue>>10, c.notify, c.window, last, sum.Dropped(), sum.Marks)
		if last > c.most {
			t.Errorf("%d KiB of queue, notified after %v, window %d: the last is done after %v in the mean, more than %v",
				c.queue>>10, c.notify, c.window, last, c.most)
		}
	}
}

// incast returns when the last of sixteen writes of 1 MiB to one host is done.
func incast(t *testing.T, queue int64, device verbs.Config) (last time.Duration, sum network.Totals) {
	const senders, size = 16, 1 << 20
	c := star(senders + 1)
	c.Switches[0].Classes[0] = network.Class{EgressMax: queue, RED: network.RED{Kmin: queue / 4, Kmax: queue / 4, Pmax: 1e6}}
	w := newWorld(t, world.Config{Network: c, Device: device})
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
	return last, w.Network().Totals()
}
