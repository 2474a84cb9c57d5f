package network

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
)

// noting is a program that notes its egress port for packets that ask for it,
// and has each hop take 8 bytes.
func noting(v *View) Hooks {
	return Hooks{Dequeue: func(p *Packet, at Place) Verdict {
		if p.Flags&Telemetry != 0 && v.Note(v.Hop(at.Out)) {
			p.Size += 8
		}
		return Default
	}}
}

// reader is a host that keeps the trails of what it receives.
type reader struct {
	permutation
	trails []string
}

func (h *reader) Pull(now Time, port int, paused uint8, p *Packet) bool {
	ok := h.permutation.Pull(now, port, paused, p)
	if p.Size > 200 {
		p.Flags = Telemetry
	}
	return ok
}

func (h *reader) Receive(now Time, port int, p *Packet) {
	h.trails = append(h.trails, fmt.Sprint(now, p.Size, h.n.Trail(h.number)))
	h.permutation.Receive(now, port, p)
}

// Each switch of the way has noted one hop, in order, and what it says is true:
// the same in one part as in four, whose packets go from one to the other.
func TestTrailInParts(t *testing.T) {
	t.Parallel()
	run := func(parts int) (all []string, digest uint64) {
		sw := Switch{Buffer: 8 << 20, Program: noting, Routing: Flowlet, Gap: event.Microsecond}
		c := clos(4, 2, 2, sw, 100*gbit, event.Microsecond)
		pool := cores.New(parts)
		defer pool.Close()
		c.Trail, c.MTU, c.Parts, c.Parallel = 5, 4096+98+24, parts, pool.Do
		n, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		hosts := make([]*reader, c.Hosts)
		for i := range hosts {
			hosts[i] = &reader{permutation: permutation{n: n, number: i, to: (i + 5) % c.Hosts, left: 200}}
			n.Attach(i, hosts[i])
			n.Kick(i, 0)
		}
		finish(t, n)
		for _, h := range hosts {
			all = append(all, h.trails...)
			if n.Trail(h.number) != nil {
				t.Error("a trail outlives the call of Receive")
			}
		}
		return all, n.Digest()
	}
	want, digest := run(1)
	if got, d := run(4); !slices.Equal(got, want) || d != digest {
		t.Errorf("four parts: digest %x, want %x; trails are equal: %v", d, digest, slices.Equal(got, want))
	}
}

// What hops say, in a network that is small enough to be computed by hand: two
// hosts send at the same time to the third one by a switch.
func TestHop(t *testing.T) {
	t.Parallel()
	c := star(3, Switch{Buffer: 1 << 20, Program: noting}, 8*gbit, event.Microsecond) // 1 ns a byte
	c.Trail, c.MTU = 1, 1100
	n, hosts := build(t, c)
	var trails [][]Hop
	hosts[2].trail = func() { trails = append(trails, slices.Clone(n.Trail(2))) }
	for i := range 2 {
		hosts[i].packets = repeat(Packet{Dst: 2, Size: 1000, Flags: Telemetry}, 1)
		n.Kick(i, 0)
	}
	finish(t, n)
	const ns = event.Nanosecond
	want := [][]Hop{
		{{Rate: 8 * gbit, At: 2000 * ns, Node: 3, Port: 2}},
		{{Rate: 8 * gbit, Sent: 1008, At: 3008 * ns, Node: 3, Port: 2}},
	}
	if fmt.Sprint(trails) != fmt.Sprint(want) {
		t.Errorf("trails:\n%v, want\n%v", trails, want)
	}
	if got := n.Totals().Unnoted; got != 0 {
		t.Errorf("%d hops had no room", got)
	}
}

// Hops for which there is no room are counted, and packets go on.
func TestTrailFull(t *testing.T) {
	t.Parallel()
	for _, room := range []int{0, 2} {
		c := star(2, Switch{Buffer: 1 << 20}, 8*gbit, event.Microsecond)
		c.Trail = room
		c.Switches[0].Program = func(v *View) Hooks {
			return Hooks{Dequeue: func(*Packet, Place) Verdict {
				for i := range 5 {
					if got := v.Note(v.Hop(0)); got != (i < room) {
						t.Errorf("room for %d, note %d: %v", room, i, got)
					}
				}
				return Default
			}}
		}
		n, hosts := build(t, c)
		hosts[1].trail = func() {
			if got := len(n.Trail(1)); got != room {
				t.Errorf("%d hops, want %d", got, room)
			}
		}
		hosts[0].packets = repeat(Packet{Dst: 1, Size: 1000}, 3)
		n.Kick(0, 0)
		finish(t, n)
		if got, want := n.Totals().Unnoted, uint64(3*(5-room)); got != want {
			t.Errorf("%d hops had no room, want %d", got, want)
		}
	}
}
