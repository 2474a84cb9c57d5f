package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// A pause frame takes 84 bytes of wire, waits for the packet that is being
// sent, and arrives after the delay; the far end ends the packet that it has
// begun.
func TestPauseFramesTakeWireTime(t *testing.T) {
	t.Parallel()
	const delay = 5 * event.Microsecond
	var sw Switch
	sw.Buffer = 1 << 20
	sw.Classes[3] = Class{Lossless: true, Alpha: -16}
	// 8 Gb/s: a byte takes 1 ns.
	n, hosts := build(t, star(3, sw, 8*gbit, delay))
	hosts[0].packets = repeat(Packet{Dst: 2, Size: 1000, DSCP: 24}, 20)
	hosts[1].packets = repeat(Packet{Dst: 0, Size: 900}, 100)
	n.Kick(0, 0)
	n.Kick(1, 0)
	n.Pause(2, 0, 1<<3)
	var pauses, data []Sight
	n.Tap(func(x Sight) {
		switch {
		case x.Pause && x.Node == 3 && x.Port == 0:
			pauses = append(pauses, x)
		case x.Node == 0:
			data = append(data, x)
		}
	})
	n.Run(40 * event.Microsecond)
	balance(t, n)
	// The threshold is next to nothing, so the first packet reaches it, at
	// 6 us. Since 5.9 us the switch sends 900 bytes to host 0. So the frame
	// leaves at 6.8 us and arrives at 11.884 us.
	if len(pauses) != 1 || pauses[0].At != 6800*event.Nanosecond {
		t.Fatalf("pause frames: %+v", pauses)
	}
	p := pauses[0]
	if p.Arrives != 11884*event.Nanosecond || p.Packet.Size != 84 || p.Mask != 1<<3 || p.Off != 1<<3 {
		t.Errorf("%+v", p)
	}
	if last := data[len(data)-1]; last.At != 11*event.Microsecond {
		t.Errorf("the last packet begins at %v, the pause comes at %v: want 11 us", last.At, p.Arrives)
	}
	if got := n.Port(0, 0); got.Paused() != 1<<3 || got.Link().Paused != n.Now()-p.Arrives {
		t.Errorf("paused: %b, for %v", got.Paused(), got.Link().Paused)
	}
	n.Pause(2, 0, 0)
	finish(t, n)
	if got := n.Totals(); got.Dropped() != 0 || len(hosts[2].received) != 20 {
		t.Errorf("%+v", got)
	}
}

// Classes that are not paused go on, at the host and in the switch.
func TestOtherClassesGoOn(t *testing.T) {
	t.Parallel()
	var sw Switch
	sw.Buffer = 1 << 20
	sw.Classes[3] = Class{Lossless: true, Alpha: -4}
	n, hosts := build(t, star(2, sw, 100*gbit, event.Microsecond))
	hosts[0].packets = append(repeat(Packet{Dst: 1, Size: 1000}, 50), repeat(Packet{Dst: 1, Size: 1000, DSCP: 24}, 5)...)
	n.Pause(1, 0, 1<<3)
	n.Kick(0, 0)
	n.Run(event.Millisecond)
	balance(t, n)
	if len(hosts[1].received) != 50 || n.Port(2, 1).Queued(3) != 5000 {
		t.Errorf("%d packets arrive, %d bytes wait, want 50 of class 0 and 5000", len(hosts[1].received), n.Port(2, 1).Queued(3))
	}
	n.Pause(1, 0, 0)
	finish(t, n)
}

// A host that sends what is paused is seen by Check.
func TestDisobedience(t *testing.T) {
	t.Parallel()
	n, hosts := build(t, star(2, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond))
	n.Attach(1, deaf{hosts[1]})
	n.Pause(0, 0, 1) // of the switch
	hosts[1].packets = repeat(Packet{Dst: 0, Size: 1000}, 1)
	n.Run(event.Millisecond)
	n.parts.all[0].setPaused(n.hosts[1].ports[0], 1)
	n.Kick(1, 0)
	n.Run(2 * event.Millisecond)
	if n.Check() == nil || n.Totals().Disobeyed != 1 {
		t.Errorf("%v, %+v", n.Check(), n.Totals())
	}
}

type deaf struct{ *source }

func (d deaf) Pull(now Time, port int, _ uint8, p *Packet) bool {
	return d.source.Pull(now, port, 0, p)
}

// RED marks nothing up to Kmin, the more the longer the queue up to Kmax, and
// all above; only what is ECN-capable. (Floyd, Jacobson; DCQCN's congestion
// point.)
func TestRED(t *testing.T) {
	t.Parallel()
	sw := swtch{rand: event.NewRand(1, 1)}
	r := &RED{Kmin: 5000, Kmax: 200_000, Pmax: 10_000}
	const tries = 100_000
	for _, c := range []struct {
		queue int64
		want  int
	}{{0, 0}, {5000, 0}, {102_500, tries / 200}, {199_999, tries / 100}, {200_000, tries / 100}, {200_001, tries}} {
		marks := 0
		for range tries {
			if sw.mark(r, c.queue) {
				marks++
			}
		}
		if !within(int64(marks), int64(c.want), 10) {
			t.Errorf("a queue of %d: %d of %d marked, want %d", c.queue, marks, tries, c.want)
		}
	}
	step := &RED{Kmin: 1000, Kmax: 1000, Pmax: million}
	if sw.mark(step, 1000) || !sw.mark(step, 1001) {
		t.Error("Kmin = Kmax is no step")
	}

	for ecn := range uint8(4) {
		var sw Switch
		sw.Buffer = 1 << 20
		sw.Classes[0].RED = RED{Kmin: 1000, Kmax: 1000}
		n, hosts := build(t, star(3, sw, 100*gbit, event.Microsecond))
		n.Pause(2, 0, 1)
		for h := range 2 {
			hosts[h].packets = repeat(Packet{Dst: 2, Size: 1000, ECN: ecn}, 10)
			n.Kick(h, 0)
		}
		n.Run(10 * event.Microsecond)
		n.Pause(2, 0, 0)
		finish(t, n)
		marked := 0
		for _, p := range hosts[2].received {
			if p.ECN == CE {
				marked++
			} else if p.ECN != ecn {
				t.Errorf("ECN %d became %d", ecn, p.ECN)
			}
		}
		// 19 to 2 packets are queued after those that are marked.
		want := map[uint8]int{NotECT: 0, ECT0: 18, ECT1: 18, CE: 20}[ecn]
		if marked != want || ecn != CE && n.Totals().Marks != uint64(want) {
			t.Errorf("ECN %d: %d of 20 packets have CE, want %d", ecn, marked, want)
		}
	}
}

// The area of a queue is its length, summed over time.
func TestQueueArea(t *testing.T) {
	t.Parallel()
	n, hosts := build(t, star(2, Switch{Buffer: 1 << 20}, 8*gbit, 0))
	n.Pause(1, 0, 1)
	hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000}, 3)
	n.Kick(0, 0)
	n.Run(103 * event.Microsecond)
	// 1000 bytes for 1 us, 2000 for another, 3000 for 100 us.
	if got, want := n.Port(2, 1).Area(), uint64(303_000*event.Microsecond)>>20; got != want {
		t.Errorf("the area is %d, want %d", got, want)
	}
	if got := n.Port(2, 1).Queues().MaxBytes; got != 3000 {
		t.Errorf("at most %d bytes were queued, want 3000", got)
	}
	n.Pause(1, 0, 0)
	finish(t, n)
	n.ResetMax()
	if got := n.Port(2, 1).Queues().MaxBytes; got != 0 {
		t.Errorf("after ResetMax, %d bytes", got)
	}
	var a area
	a.advance(1<<62, 1<<40)
	if a.hi != 1<<38 || a.lo != 0 {
		t.Errorf("%+v", a)
	}
}
