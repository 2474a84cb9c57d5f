package network

import (
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// worn returns two hosts at a switch, by cables 0 and 1 of 100 Gb/s and 1 µs.
// Host 0 sends packets to host 1 for ever.
func worn(t *testing.T) *Network {
	t.Helper()
	sw := Switch{Buffer: 4 << 20}
	sw.Classes[3] = Class{Lossless: true, XONOffset: 3000}
	c := Config{Hosts: 2, Switches: []Switch{sw}, Tables: []Table{{Set: []uint16{0, 1}, Sets: [][]uint16{{0}, {1}}}}}
	for h := range 2 {
		c.Cables = append(c.Cables, Cable{A: h, B: 2, Rate: 100 * gbit, Delay: event.Microsecond})
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n.Attach(0, &flood{n: n, r: event.NewRand(1, 1), left: 1 << 30, to: []uint16{1}})
	n.Kick(0, 0)
	return n
}

// delivered returns the packets that arrive in the next millisecond, after a
// tenth of one.
func delivered(n *Network) uint64 {
	n.Run(n.Now() + event.Millisecond/10)
	before := n.Totals().Delivered
	n.Run(n.Now() + event.Millisecond)
	return n.Totals().Delivered - before
}

// TestConditions: cables are slower, longer, lose packets, or lose all that one
// end sends, and are as they were afterwards.
func TestConditions(t *testing.T) {
	t.Parallel()
	n := worn(t)
	usual := delivered(n)
	for _, test := range []struct {
		name        string
		cable       int
		c           Condition
		least, most uint64 // thousandths of what is usual
	}{
		{"a quarter of the rate", 0, Condition{Rate: 25 * gbit}, 240, 265},
		{"a longer way", 0, Condition{Delay: 90 * event.Microsecond}, 970, 1030},
		{"a tenth is lost", 0, Condition{Loss: billion / 10}, 870, 930},
		{"all is lost", 0, Condition{Loss: billion}, 0, 0},
		{"what the host sends is lost", 0, Condition{Void: [2]bool{true, false}}, 0, 0},
		{"what the switch sends is lost", 0, Condition{Void: [2]bool{false, true}}, 970, 1030},
		{"what the switch sends to the other is lost", 1, Condition{Void: [2]bool{false, true}}, 0, 0},
		{"nothing is", 1, Condition{}, 970, 1030},
	} {
		if err := n.SetCondition(test.cable, test.c); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := 1000 * delivered(n) / usual; got < test.least || got > test.most {
			t.Errorf("%s: %d of 1000 packets arrive", test.name, got)
		}
		if err := n.SetCondition(test.cable, Condition{}); err != nil {
			t.Fatal(err)
		}
		if got := 1000 * delivered(n) / usual; got < 970 || got > 1030 {
			t.Errorf("%s, and after it: %d of 1000 packets arrive", test.name, got)
		}
		if err := n.Check(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	for want, c := range map[string]Condition{
		"it must be 1 Mb/s to 8 Tb/s": {Rate: 1}, "not negative": {Delay: -1}, "0 to 1 s": {Delay: event.Second}, "of 1e9": {Loss: billion + 1},
	} {
		if err := n.SetCondition(1, c); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cable 1") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestPausesInTheVoid: a pause whose end is lost ends when the cable is whole
// again, and so does one that was on the cable when it broke.
func TestPausesInTheVoid(t *testing.T) {
	t.Parallel()
	n := worn(t)
	usual := delivered(n)
	void := func(side int, on bool) {
		t.Helper()
		var c Condition
		c.Void[side] = on
		if err := n.SetCondition(1, c); err != nil {
			t.Fatal(err)
		}
	}
	n.Pause(1, 0, 1<<3|1<<4)
	n.Run(n.Now() + event.Microsecond/2) // it is on the cable
	void(0, true)
	if got := delivered(n); got < usual*97/100 {
		t.Errorf("%d of %d packets arrive, and the pause was lost", got, usual)
	}
	void(0, false)
	if got := delivered(n); got != 0 {
		t.Errorf("%d packets arrive at a host that pauses", got)
	}
	void(0, true)
	n.Pause(1, 0, 0)
	delivered(n)
	void(0, false)
	if got := delivered(n); got < usual*97/100 {
		t.Errorf("%d of %d packets arrive, and the pause is over", got, usual)
	}
}
