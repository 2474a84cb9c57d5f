package path

import (
	"testing"
	"time"
)

// A path delays a packet by half the round trip, after the time that the rate
// takes, and drops what its queue has no room for.
func TestDirection(t *testing.T) {
	t.Parallel()
	for _, frame := range []int{0, 14} { // bytes of a link's header take no time, and no room
		testDirection(t, frame)
	}
}

func testDirection(t *testing.T, frame int) {
	d := direction{cfg: Config{Rate: 8e9, RTT: 2 * time.Millisecond, Queue: 3000, MTU: 1000, Frame: frame, Loss: 0.5}}
	for range 3 {
		d.take(0, d.buffer(), 0.5)
	}
	d.take(0, d.buffer(), 0.9) // no room
	d.take(0, d.buffer(), 0.4) // bad luck
	for i := range 3 {
		due := int64(time.Millisecond) + int64(i+1)*1000
		if at, ok := d.next(); !ok || at != due {
			t.Errorf("packet %d arrives at %d, %v, want %d", i, at, ok, due)
		}
		if d.give(due-1) != nil {
			t.Errorf("packet %d arrives too soon", i)
		}
		if b := d.give(due); len(b) != frame+1000 {
			t.Errorf("packet %d has %d bytes", i, len(b))
		}
	}
	if _, ok := d.next(); ok || d.packets != 5 || d.lost != 1 || d.overflows != 1 {
		t.Errorf("%+v", d.counts)
	}
}
