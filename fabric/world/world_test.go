package world_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/world"
	"github.com/gosoftroce/rocev2/verbs"
)

// star returns a network of hosts around a switch, at 100 Gb/s and 1 µs.
func star(hosts int) network.Config {
	c := network.Config{Hosts: hosts, Switches: []network.Switch{{Buffer: 64 << 20}}}
	table := network.Table{Set: make([]uint16, hosts)}
	for i := range hosts {
		c.Cables = append(c.Cables, network.Cable{A: i, B: hosts, Rate: 100e9, Delay: event.Microsecond})
		table.Sets = append(table.Sets, []uint16{uint16(i)})
		table.Set[i] = uint16(i)
	}
	c.Tables = []network.Table{table}
	return c
}

func newWorld(t testing.TB, c world.Config) *world.World {
	t.Helper()
	w, err := world.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Programs sleep in virtual time, hand values on at once, and see deadlines of
// virtual time.
func TestTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	box := world.NewBox[string](w)
	var got []time.Duration
	must(t, w.Go(0, func(ctx context.Context, dev *verbs.Device) error {
		if err := w.Sleep(ctx, time.Hour); err != nil {
			return err
		}
		box.Put("an hour")
		return nil
	}))
	must(t, w.Go(1, func(ctx context.Context, dev *verbs.Device) error {
		short, cancel := w.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := box.Take(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after a minute: %v", err)
		}
		got = append(got, w.Now())
		_, err := box.Take(ctx)
		got = append(got, w.Now(), time.Duration(dev.Now()-2))
		return err
	}))
	must(t, w.Run())
	if len(got) != 3 || got[0] != time.Minute || got[1] != time.Hour || got[2] != time.Hour {
		t.Errorf("the times are %v", got)
	}
}

// Programs that wait for what does not come are told, and can end.
func TestStuck(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Network: star(2)})
	waits := func(ctx context.Context, dev *verbs.Device) error {
		cq, err := dev.CreateCQ(1)
		if err != nil {
			return err
		}
		_, err = cq.Wait(ctx, make([]verbs.WC, 1))
		return err
	}
	must(t, w.Go(1, waits))
	must(t, w.Go(0, waits))
	err := w.Run()
	if !errors.Is(err, world.ErrStuck) {
		t.Errorf("Run says %v", err)
	}
	for _, want := range []string{"host 0: ", "host 1: ", "verbs.(*CQ).Wait, called by ", "(world_test.go:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if n := w.Running(); n != 0 {
		t.Errorf("%d programs are left", n)
	}
}
