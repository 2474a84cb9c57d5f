package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// recorder is a host that notes when it is called, and does what it is told.
type recorder struct {
	source
	pulls, timers []Time
	onReceive     func()
	onTimer       func()
}

func (h *recorder) Pull(now Time, port int, paused uint8, p *Packet) bool {
	h.pulls = append(h.pulls, now)
	return h.source.Pull(now, port, paused, p)
}

func (h *recorder) Receive(now Time, port int, p *Packet) {
	h.source.Receive(now, port, p)
	if h.onReceive != nil {
		h.onReceive()
	}
}

func (h *recorder) Timer(now Time) {
	h.timers = append(h.timers, now)
	if h.onTimer != nil {
		h.onTimer()
	}
}

// A port pulls when it was kicked and its cable is free, and no more.
func TestWhenPortsPull(t *testing.T) {
	t.Parallel()
	n, err := New(chain(Switch{}, event.Microsecond, 8*gbit))
	if err != nil {
		t.Fatal(err)
	}
	a, b := &recorder{}, &recorder{}
	n.Attach(0, a)
	n.Attach(1, b)
	a.packets = repeat(Packet{Dst: 1, Size: 1000}, 2)
	n.Kick(0, 0)
	n.Kick(0, 0)
	if len(a.pulls) != 0 {
		t.Error("Kick pulls at once")
	}
	n.Run(10 * event.Microsecond)
	// After two packets of 1 us there is nothing more.
	want := []Time{0, event.Microsecond, 2 * event.Microsecond}
	if len(a.pulls) != 3 || a.pulls[0] != want[0] || a.pulls[1] != want[1] || a.pulls[2] != want[2] {
		t.Errorf("pulled at %v, want %v", a.pulls, want)
	}
	if len(b.pulls) != 0 {
		t.Errorf("a host that was not kicked was asked at %v", b.pulls)
	}

	// Kicks from inside the host pull after it has returned; those of other
	// hosts too.
	a.pulls = nil
	b.onReceive = func() {
		before := len(b.pulls)
		b.packets = append(b.packets, Packet{Dst: 0, Size: 84})
		n.Kick(1, 0)
		n.Kick(0, 0)
		if len(b.pulls) != before {
			t.Error("a port pulls while its host is busy")
		}
	}
	a.packets = repeat(Packet{Dst: 1, Size: 1000}, 1)
	n.Kick(0, 0)
	n.Run(n.Now() + 10*event.Microsecond)
	if len(b.pulls) != 2 || b.pulls[0] != 12*event.Microsecond || len(a.received) != 1 {
		t.Errorf("the answer was pulled at %v, want 12 us and once more", b.pulls)
	}
	if len(a.pulls) != 3 || a.pulls[2] != 12*event.Microsecond {
		t.Errorf("a kick from another host pulled at %v", a.pulls)
	}
}

// A host has one timer, which can be moved and cancelled; scripts run in order.
func TestTimersAndScripts(t *testing.T) {
	t.Parallel()
	n, err := New(chain(Switch{}, event.Microsecond, 8*gbit))
	if err != nil {
		t.Fatal(err)
	}
	a := &recorder{}
	n.Attach(0, a)
	a.onTimer = func() {
		if len(a.timers) == 1 {
			n.SetTimer(0, 500)
		}
	}
	n.SetTimer(0, 100)
	n.SetTimer(0, 300)
	n.SetTimer(0, 200)
	var order []int
	n.At(50, func() { order = append(order, 1); n.At(50, func() { order = append(order, 3) }) })
	n.At(50, func() { order = append(order, 2) })
	n.At(40, func() { order = append(order, 0) })
	n.At(600, func() { n.SetTimer(0, 700) })
	n.At(650, func() { n.SetTimer(0, event.Never) })
	n.Run(event.Never)
	if len(a.timers) != 2 || a.timers[0] != 200 || a.timers[1] != 500 {
		t.Errorf("timers at %v, want 200 and 500 ps", a.timers)
	}
	if len(order) != 4 || order[0] != 0 || order[1] != 1 || order[2] != 2 || order[3] != 3 {
		t.Errorf("scripts ran in the order %v", order)
	}
	if !n.Idle() || n.Now() != 650 {
		t.Errorf("idle %v at %v", n.Idle(), n.Now())
	}
}

// In the steady state nothing allocates.
func TestNothingAllocates(t *testing.T) {
	sw := Switch{Buffer: 1 << 20}
	sw.Classes[3] = Class{Lossless: true, Alpha: -3, RED: RED{10_000, 50_000, million}}
	c := clos(2, 4, 2, sw, 100*gbit, event.Microsecond)
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Hosts {
		n.Attach(i, &permutation{n: n, number: i, to: (i + 3) % c.Hosts, left: 1 << 30})
		n.Kick(i, 0)
	}
	n.Run(event.Millisecond)
	if got := testing.AllocsPerRun(10, func() { n.Run(n.Now() + 100*event.Microsecond) }); got != 0 {
		t.Errorf("%v allocations in 100 us", got)
	}
}
