package conn

import (
	"reflect"
	"slices"
	"testing"
)

// numbered is counters of which each has a number of its own.
func numbered() (s Stats) {
	for i := range s.all() {
		s.all()[i] = uint64(i + 1)
	}
	return s
}

// Every counter has a name and a help, and takes part in sums. There is nothing
// else beside them: all and Of take the structs for arrays.
func TestStatsNameAndAddAllCounters(t *testing.T) {
	t.Parallel()
	for _, v := range []reflect.Type{reflect.TypeFor[Stats](), reflect.TypeFor[QPDrops]()} {
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Type.Kind() != reflect.Uint64 && f.Type != reflect.TypeFor[QPDrops]() {
				t.Errorf("%v.%s is no counter", v, f.Name)
			}
		}
	}
	a, b := numbered(), numbered()
	a.Add(&b)
	var names []string
	a.Each(func(name string, value uint64) {
		if slices.Contains(names, name) {
			t.Errorf("two counters are called %s", name)
		}
		if names = append(names, name); value != uint64(2*len(names)) || a.Help(name) == "" {
			t.Errorf("%s, %q, is %d, not %d", name, a.Help(name), value, 2*len(names))
		}
	})
	if len(names) != numCounters {
		t.Errorf("%d counters have a name, of %d", len(names), numCounters)
	}
}

// A packet that is dropped counts under the reason with the name that the
// reason has.
func TestDropsCountUnderTheirReason(t *testing.T) {
	t.Parallel()
	for d, field := range map[Drop]func(*QPDrops) *uint64{
		DropState: func(c *QPDrops) *uint64 { return &c.State }, DropService: func(c *QPDrops) *uint64 { return &c.Service },
		DropPeer: func(c *QPDrops) *uint64 { return &c.Peer }, DropPKey: func(c *QPDrops) *uint64 { return &c.PKey },
		DropQPN: func(c *QPDrops) *uint64 { return &c.QPN }, DropDuplicate: func(c *QPDrops) *uint64 { return &c.Duplicate },
		DropOutOfOrder: func(c *QPDrops) *uint64 { return &c.OutOfOrder }, DropRNR: func(c *QPDrops) *uint64 { return &c.RNR },
		DropInvalid: func(c *QPDrops) *uint64 { return &c.Invalid }, DropBusy: func(c *QPDrops) *uint64 { return &c.Busy },
		DropGhost: func(c *QPDrops) *uint64 { return &c.Ghost }, DropStale: func(c *QPDrops) *uint64 { return &c.Stale },
		DropGap: func(c *QPDrops) *uint64 { return &c.Gap }, DropBadResponse: func(c *QPDrops) *uint64 { return &c.BadResponse },
		DropRdAtomic: func(c *QPDrops) *uint64 { return &c.RdAtomic }, DropConflict: func(c *QPDrops) *uint64 { return &c.Conflict },
		DropNotPresent: func(c *QPDrops) *uint64 { return &c.NotPresent }, DropQKey: func(c *QPDrops) *uint64 { return &c.QKey },
		DropTooLong: func(c *QPDrops) *uint64 { return &c.TooLong },
	} {
		var c Tally
		c.Result(DropNone)
		c.Result(d)
		s := c.Stats()
		if *field(&s.Drops) != 1 || s.Drops.Total() != 1 {
			t.Errorf("%v: %+v", d, s.Drops)
		}
		s.Each(func(name string, n uint64) {
			if n != 0 && name != "drop_"+d.String() {
				t.Errorf("%v counts as %s", d, name)
			}
		})
	}
}

// BenchmarkAdd is what a device does for each of its queue pairs, with its lock
// held, when a program asks for their sum.
func BenchmarkAdd(b *testing.B) {
	var sum Stats
	s := numbered()
	b.ReportAllocs()
	for b.Loop() {
		sum.Add(&s)
	}
}
