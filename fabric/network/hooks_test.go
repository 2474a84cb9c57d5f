package network

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// chaos is a program that does anything that it may, at random, for a while.
// Then it lets all go on.
func chaos(v *View) Hooks {
	r := v.Rand()
	below := func(n int) int { return int(r.Uint64n(uint64(n))) }
	over := false
	v.SetTimer(0)
	port := func() int { return below(v.Ports()) }
	act := func() {
		if v.Ports() == 0 || over {
			return
		}
		switch below(10) {
		case 0:
			v.Hold(port(), uint8(r.Uint64()))
		case 1, 2:
			v.Hold(port(), 0)
		case 3:
			v.Pause(port(), uint8(r.Uint64()))
		case 4, 5:
			v.Pause(port(), 0)
		case 6, 7:
			v.Send(port(), Frame{Type: uint8(below(8)), Class: uint8(below(8)), Size: uint16(below(300)), Value: r.Uint64()})
		}
	}
	change := func(p *Packet) {
		if below(4) > 0 {
			return
		}
		*p = Packet{Handle: uint32(r.Uint64()), Src: uint16(r.Uint64()), Dst: uint16(r.Uint64()), Size: uint16(r.Uint64n(uint64(v.MTU() + 40))), DSCP: uint8(r.Uint64()),
			ECN: uint8(r.Uint64()), Class: uint8(r.Uint64()), Hops: uint8(r.Uint64()), Flags: Flags(r.Uint64()), in: uint16(r.Uint64())}
	}
	return Hooks{
		Route: func(_ *Packet, in int, set []uint16) int {
			act()
			if len(set) == 0 || below(10) == 0 {
				return below(v.Ports()+1) - 1
			}
			return int(set[below(len(set))])
		},
		Enqueue: func(p *Packet, at Place, why Drop) Verdict {
			act()
			change(p)
			return Verdict(below(3))
		},
		Dequeue: func(p *Packet, at Place) Verdict {
			act()
			change(p)
			for range below(4) {
				v.Note(v.Hop(at.Out))
			}
			return Verdict(below(10) / 9 * int(Discard))
		},
		Dropped: func(p *Packet, _ Place, _ Drop) { act(); change(p) },
		Paused:  func(int, uint8) { act() },
		Frame: func(at int, f Frame) {
			act()
			if f.Type > 7 || f.Class > 7 {
				panic("a frame that nobody has sent")
			}
		},
		Cable: func(int, bool) { act() },
		Timer: func() {
			act()
			if !v.IsHost() && v.Ports() > 0 {
				v.Flush(port(), uint8(below(8)))
			}
			if v.Now() < 1500*event.Microsecond {
				v.SetTimer(v.Now() + Time(1+below(100_000_000)))
				return
			}
			over = true
			for at := range v.Ports() {
				v.Hold(at, 0)
				v.Pause(at, 0)
			}
		},
	}
}

// chaotic returns a random network with such programs.
func chaotic(seed uint64) Config {
	c := world(seed)
	for i := range c.Switches {
		if seed%3 > 0 || i%2 == 0 {
			c.Switches[i].Program = chaos
		}
	}
	if seed%2 == 0 {
		c.HostProgram = chaos
	}
	c.Trail = int(seed % 4)
	return c
}

// Whatever programs do, the books balance at any time, no packet is gone twice,
// and the run is the same in any number of parts.
func TestChaos(t *testing.T) {
	t.Parallel()
	count := *worlds / 2
	if count == 0 {
		count = 150
		if testing.Short() || race.Enabled {
			count = 40
		}
	}
	var sum Totals
	for seed := range count {
		n, first, _ := liveIn(t, chaotic(seed), seed, false, 1)
		if n.Totals().Inside() == 0 {
			empty(t, n)
		} else {
			stands(t, seed, n)
		}
		m, other, _ := liveIn(t, chaotic(seed), seed, true, 2+int(seed%3))
		if other != first || m.Totals() != n.Totals() {
			t.Fatalf("seed %d: digest %x, in %d parts %x\n%+v\n%+v", seed, first, m.Parts(), other, n.Totals(), m.Totals())
		}
		one := n.Totals()
		sum.add(&one)
	}
	if sum.Drops[Programmed] == 0 || sum.Drops[TooLong] == 0 || sum.Frames == 0 || sum.Unnoted == 0 || sum.Delivered == 0 {
		t.Errorf("not all has happened: %+v", sum)
	}
}

// What no program may do ends the run, and says which node it was.
func TestProgramPanics(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Program{
		"node 2: Route returned port 2: there are ports 0 to 1": func(*View) Hooks {
			return Hooks{Route: func(*Packet, int, []uint16) int { return 2 }}
		},
		"node 2: Enqueue returned 9": func(*View) Hooks {
			return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { return 9 }}
		},
		"node 2: Dequeue returned 1": func(*View) Hooks {
			return Hooks{Dequeue: func(*Packet, Place) Verdict { return Store }}
		},
		"node 2: there is no port -1 among 2": func(v *View) Hooks {
			return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { v.Queued(-1); return Default }}
		},
		"node 2: Note is for Dequeue": func(v *View) Hooks {
			return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { v.Note(Hop{}); return Default }}
		},
		"node 2: Flush is for Timer": func(v *View) Hooks {
			return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { v.Flush(0, 0); return Default }}
		},
		"node 2: frame of type 8": func(v *View) Hooks {
			return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { v.Send(0, Frame{Type: 8}); return Default }}
		},
	} {
		c := star(2, Switch{Buffer: 1 << 20, Program: p}, 100*gbit, event.Microsecond)
		n, hosts := build(t, c)
		hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000}, 1)
		n.Kick(0, 0)
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			n.Run(event.Never)
		}()
	}
}

// What a hook says of a packet happens: dropped by name, sent elsewhere, stored
// above a threshold, changed where that is allowed.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	type seen struct {
		delivered [3]int
		drops     [NumDrops]uint64
	}
	run := func(edit func(*Switch)) (s seen, got []Packet) {
		c := star(3, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond)
		edit(&c.Switches[0])
		n, hosts := build(t, c)
		hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000}, 10)
		n.Kick(0, 0)
		finish(t, n)
		for i, h := range hosts {
			s.delivered[i] = len(h.received)
		}
		s.drops = n.Totals().Drops
		return s, hosts[1].received
	}
	odd := func(h func(*int) Hooks) func(*Switch) {
		return func(s *Switch) { s.Program = func(*View) Hooks { return h(new(int)) } }
	}
	for _, row := range []struct {
		what string
		edit func(*Switch)
		want seen
	}{
		{"no hook", func(s *Switch) { s.Program = func(*View) Hooks { return Hooks{} } }, seen{delivered: [3]int{1: 10}}},
		{"every other one discarded in Enqueue", odd(func(n *int) Hooks {
			return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { *n++; return Verdict(*n % 2 * int(Discard)) }}
		}), seen{[3]int{1: 5}, [NumDrops]uint64{Programmed: 5}}},
		{"every other one discarded in Dequeue", odd(func(n *int) Hooks {
			return Hooks{Dequeue: func(*Packet, Place) Verdict { *n++; return Verdict(*n % 2 * int(Discard)) }}
		}), seen{[3]int{1: 5}, [NumDrops]uint64{Programmed: 5}}},
		{"no route", odd(func(*int) Hooks { return Hooks{Route: func(*Packet, int, []uint16) int { return -7 }} }),
			seen{drops: [NumDrops]uint64{NoRoute: 10}}},
		{"to the wrong host", odd(func(*int) Hooks { return Hooks{Route: func(*Packet, int, []uint16) int { return 2 }} }),
			seen{drops: [NumDrops]uint64{Misrouted: 10}}},
		{"too long", odd(func(*int) Hooks {
			return Hooks{Dequeue: func(p *Packet, _ Place) Verdict { p.Size = DefaultMTU + 1; return Default }}
		}), seen{drops: [NumDrops]uint64{TooLong: 10}}},
		{"a queue that has no room", func(s *Switch) { s.Classes[0].EgressMax = 500 }, seen{drops: [NumDrops]uint64{EgressFull: 10}}},
		{"stored all the same", func(s *Switch) {
			s.Classes[0].EgressMax = 500
			s.Program = func(*View) Hooks {
				return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { return Store }}
			}
		}, seen{delivered: [3]int{1: 10}}},
		{"not more than there is", func(s *Switch) {
			s.Buffer, s.Classes[0].EgressMax = 500, 500
			s.Program = func(*View) Hooks {
				return Hooks{Enqueue: func(*Packet, Place, Drop) Verdict { return Store }}
			}
		}, seen{drops: [NumDrops]uint64{EgressFull: 10}}},
		{"made small enough", func(s *Switch) {
			s.Classes[0].EgressMax = 500
			s.Program = func(*View) Hooks {
				return Hooks{Enqueue: func(p *Packet, _ Place, _ Drop) Verdict { p.Size = 400; return Default }}
			}
		}, seen{delivered: [3]int{1: 10}}},
	} {
		if got, _ := run(row.edit); got != row.want {
			t.Errorf("%s: %+v, want %+v", row.what, got, row.want)
		}
	}
	_, got := run(odd(func(*int) Hooks {
		return Hooks{Dequeue: func(p *Packet, _ Place) Verdict {
			*p = Packet{Size: 300, DSCP: 60, ECN: 7, Flags: 3, Dst: 9, Src: 9, Handle: 99, SrcPort: 9, Hops: 1}
			return Default
		}}
	}))
	want := Packet{Size: 300, DSCP: 60, ECN: 3, Flags: 3, Dst: 1, Src: 0, Handle: 0, Hops: 63}
	if p := got[0]; p.Size != want.Size || p.DSCP != want.DSCP || p.ECN != want.ECN || p.Flags != want.Flags || p.Dst != want.Dst || p.Src != want.Src || p.Handle != 0 || p.SrcPort != 0 || p.Hops != want.Hops {
		t.Errorf("a packet that was changed arrives as %+v, want %+v", p, want)
	}
}

// A program pauses the far end, holds its own port, and sends frames of which
// the newest counts.
func TestFlowControlOfPrograms(t *testing.T) {
	t.Parallel()
	c := star(2, Switch{Buffer: 1 << 20}, 8*gbit, event.Microsecond) // 1 ns a byte
	var frames []string
	var paused []uint8
	c.HostProgram = func(v *View) Hooks {
		return Hooks{
			Frame:  func(port int, f Frame) { frames = append(frames, fmt.Sprint(v.Node(), port, f, v.Now())) },
			Paused: func(_ int, classes uint8) { paused = append(paused, classes) },
		}
	}
	step := 0
	c.Switches[0].Program = func(v *View) Hooks {
		v.SetTimer(10 * event.Microsecond)
		return Hooks{Timer: func() {
			switch step++; step {
			case 1: // host 0 sends a packet every microsecond
				v.Pause(0, 1<<3)
				v.Send(1, Frame{Type: 2, Class: 5, Value: 1})
				v.Send(1, Frame{Type: 2, Class: 5, Value: 1<<63 + 77})
				v.Send(1, Frame{Type: 3, Class: 5, Value: 4, Size: 500})
				v.SetTimer(v.Now() + 20*event.Microsecond)
			case 2:
				v.Pause(0, 0)
				v.Hold(1, 1<<3)
				v.SetTimer(v.Now() + 20*event.Microsecond)
			case 3:
				v.Hold(1, 0)
			}
		}}
	}
	n, hosts := build(t, c)
	hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000, DSCP: 24}, 40)
	n.Kick(0, 0)
	finish(t, n)
	// Packets leave the switch from 2 us on, one each us. At 10 us frames
	// of 84 and 500 bytes go before. The pause arrives at 11.084 us, when
	// the twelfth is being sent, and ends at 31.084 us. What comes then
	// waits until 50 us.
	if got := fmt.Sprint(paused); got != "[8 0]" {
		t.Errorf("host 0 was paused for classes %v", got)
	}
	if len(hosts[1].at) != 40 || hosts[1].at[11] != 15_584*event.Nanosecond || hosts[1].at[12] != 52*event.Microsecond {
		t.Errorf("the twelfth came at %v, the next one at %v", hosts[1].at[11], hosts[1].at[12])
	}
	want := fmt.Sprintf("[1 0 {2 5 84 %d} 11.084us 1 0 {3 5 500 4} 11.584us]", uint64(1<<63+77))
	if got := fmt.Sprint(frames); got != want {
		t.Errorf("frames %s, want %s", got, want)
	}
}
