package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// contend has a host for each class send to one receiver, for so long that the
// receiver's cable is the bottleneck. It returns the bytes of each class that
// have come between 1 ms and 5 ms, and what the cable carries in that time.
func contend(t *testing.T, classes [NumClasses]Class, sizes map[int]int) (got [NumClasses]int64, all int64) {
	t.Helper()
	const rate = 10 * gbit
	for c := range classes {
		// Each class has a buffer for itself, so that only the schedule
		// decides.
		classes[c].EgressMax, classes[c].Reserve = 100_000, 200_000
	}
	n, hosts := build(t, star(NumClasses+1, Switch{Buffer: 100 << 20, Classes: classes}, rate, event.Nanosecond))
	for c, size := range sizes {
		hosts[c].packets = repeat(Packet{Dst: NumClasses, Size: uint16(size), DSCP: uint8(8 * c)}, 8_000_000/size)
		n.Kick(c, 0)
	}
	n.Run(5 * event.Millisecond)
	balance(t, n)
	h := hosts[NumClasses]
	for i, at := range h.at {
		if at > event.Millisecond && at <= 5*event.Millisecond {
			got[h.received[i].DSCP/8] += int64(h.received[i].Size)
		}
	}
	return got, rate / 8 * 4 / 1000
}

func within(got, want int64, percent int64) bool {
	return 100*got >= want*(100-percent) && 100*got <= want*(100+percent)
}

// Classes share by their weights, whatever the sizes of their packets, within
// 2 %.
func TestDWRRShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		weights, sizes map[int]int
	}{
		{map[int]int{0: 1, 3: 1}, map[int]int{0: 1000, 3: 1000}},
		{map[int]int{0: 50, 3: 50}, map[int]int{0: 84, 3: 4194}},
		{map[int]int{0: 1, 1: 2, 2: 4}, map[int]int{0: 4194, 1: 500, 2: 1500}},
		{map[int]int{0: 30, 5: 70}, map[int]int{0: 777, 5: 1111}},
		{map[int]int{1: 1, 7: 19}, map[int]int{1: 4194, 7: 84}},
	} {
		var classes [NumClasses]Class
		sum := 0
		for class, w := range c.weights {
			classes[class].Weight = uint16(w)
			sum += w
		}
		got, all := contend(t, classes, c.sizes)
		for class, w := range c.weights {
			if want := all * int64(w) / int64(sum); !within(got[class], want, 2) {
				t.Errorf("weights %v, sizes %v: class %d gets %d bytes, want %d", c.weights, c.sizes, class, got[class], want)
			}
		}
	}
}

// A strict class has all that it wants, the highest one first, and the others
// share the rest.
func TestStrictComesFirst(t *testing.T) {
	t.Parallel()
	classes := [NumClasses]Class{0: {Weight: 1}, 3: {Weight: 3}, 6: {Strict: true}, 7: {Strict: true}}
	got, all := contend(t, classes, map[int]int{0: 1000, 3: 1000, 6: 1000})
	if got[0]+got[3] != 0 || !within(got[6], all, 2) {
		t.Errorf("a strict class that never ends leaves %d and %d bytes to others", got[0], got[3])
	}
	got, all = contend(t, classes, map[int]int{6: 1000, 7: 1000})
	if got[6] != 0 || !within(got[7], all, 2) {
		t.Errorf("the highest strict class leaves %d bytes to the next", got[6])
	}

	// A strict class of a tenth of the cable.
	const rate = 10 * gbit
	n, hosts := build(t, star(4, Switch{Buffer: 100 << 20, Classes: classes}, rate, event.Nanosecond))
	hosts[0].packets = repeat(Packet{Dst: 3, Size: 1000}, 6000)
	hosts[1].packets = repeat(Packet{Dst: 3, Size: 1000, DSCP: 24}, 6000)
	n.Kick(0, 0)
	n.Kick(1, 0)
	for i := range Time(500) {
		n.At(i*8*event.Microsecond, func() {
			hosts[2].packets = repeat(Packet{Dst: 3, Size: 1000, DSCP: 48}, 1)
			n.Kick(2, 0)
		})
	}
	n.Run(4 * event.Millisecond)
	balance(t, n)
	got = [NumClasses]int64{}
	for i, at := range hosts[3].at {
		if at > event.Millisecond {
			got[hosts[3].received[i].DSCP/8] += 1000
		}
	}
	all = rate / 8 * 3 / 1000
	for class, want := range map[int]int64{6: all / 10, 0: all * 9 / 40, 3: all * 27 / 40} {
		if !within(got[class], want, 2) {
			t.Errorf("beside a strict class of a tenth, class %d gets %d bytes, want %d", class, got[class], want)
		}
	}
}

// While a class is paused the others have the cable, and it makes up for
// nothing afterwards.
func TestPausedClassYields(t *testing.T) {
	t.Parallel()
	const rate = 10 * gbit
	n, hosts := build(t, star(3, Switch{Buffer: 100 << 20}, rate, event.Nanosecond))
	hosts[0].packets = repeat(Packet{Dst: 2, Size: 1000}, 6000)
	hosts[1].packets = repeat(Packet{Dst: 2, Size: 1000, DSCP: 24}, 6000)
	n.Kick(0, 0)
	n.Kick(1, 0)
	n.At(event.Millisecond, func() { n.Pause(2, 0, 1<<3) })
	n.At(2*event.Millisecond, func() { n.Pause(2, 0, 0) })
	n.Run(3 * event.Millisecond)
	balance(t, n)
	var got [3][NumClasses]int64
	for i, at := range hosts[2].at {
		got[at*3/(3*event.Millisecond+1)][hosts[2].received[i].DSCP/8] += 1000
	}
	const all = rate / 8 / 1000
	if !within(got[0][3], all/2, 2) || got[1][3] > 4000 || !within(got[1][0], all, 2) || !within(got[2][3], all/2, 2) {
		t.Errorf("bytes by millisecond and class: %v; class 3 is paused in the second", got)
	}
}
