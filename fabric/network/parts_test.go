package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
)

// divided returns the parts of all nodes.
func divided(c Config, parts int) string {
	c.Parts = parts
	of, n := c.parts()
	return fmt.Sprint(n, of)
}

// Hosts are with their leaf, neighbours in one part, and spines where there is
// least to do.
func TestDivide(t *testing.T) {
	t.Parallel()
	two := clos(4, 2, 2, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond)
	star := star(4, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond)
	still := star
	still.Cables = slices.Clone(star.Cables)
	still.Cables[1].Delay, still.Cables[2].Delay = 0, 0
	dead := star
	dead.Cables = slices.Clone(star.Cables)
	for i := range dead.Cables {
		dead.Cables[i].Delay = 0
	}
	for _, c := range []struct {
		what  string
		c     Config
		parts int
		want  string
	}{
		{"clos, not divided", two, 1, "1 [0 0 0 0 0 0 0 0 0 0 0 0 0 0]"},
		{"clos, in 2", two, 2, "2 [0 0 0 0 1 1 1 1 0 0 1 1 0 1]"},
		{"clos, in 4", two, 4, "4 [0 0 1 1 2 2 3 3 0 1 2 3 0 1]"},
		{"clos, in 3", two, 3, "3 [0 0 1 1 1 1 2 2 0 1 1 2 0 2]"},
		{"star: hosts by themselves", star, 2, "2 [0 0 1 1 0]"},
		{"star, in more parts than there are", star, 64, "5 [0 1 2 3 4]"},
		{"star, two hosts without a delay", still, 3, "3 [0 1 1 2 1]"},
		{"star without a delay", dead, 4, "1 [0 0 0 0 0]"},
		{"hosts without cables", Config{Hosts: 3}, 2, "1 [0 0 0]"},
	} {
		if got := divided(c.c, c.parts); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	for _, parts := range []int{-1, 65} {
		two.Parts = parts
		if _, err := New(two); err == nil || !strings.Contains(err.Error(), "parts") {
			t.Errorf("%d parts: %v", parts, err)
		}
	}
}

// Switches without hosts are with those that they have most cables to, and of
// cables with several delays the longest are cut.
func TestDivideWell(t *testing.T) {
	t.Parallel()
	us := event.Microsecond
	pair := func(a, b int, delay Time) Cable { return Cable{A: a, B: b, Rate: 100 * gbit, Delay: delay} }
	of := func(hosts, switches int, cables ...Cable) Config {
		return Config{Hosts: hosts, Switches: make([]Switch, switches), Cables: cables}
	}
	// Two pods of two edges (4 to 7) and two aggregations (8 to 11), under
	// cores 12 and 13.
	pods := of(4, 10)
	for pod := range 2 {
		for i := range 2 {
			edge := 4 + 2*pod + i
			pods.Cables = append(pods.Cables, pair(2*pod+i, edge, us), pair(edge, 8+2*pod, us), pair(edge, 9+2*pod, us), pair(8+2*pod+i, 12+i, us))
		}
	}
	// Two sites of two switches with a host each, far from each other, that
	// take turns in the order of nodes.
	sites := of(4, 4, pair(0, 4, us), pair(1, 5, us), pair(2, 6, us), pair(3, 7, us), pair(4, 6, us), pair(5, 7, us), pair(4, 5, 1000*us))
	// One site with all hosts but one: the cable between is not worth it.
	large := of(8, 4, pair(7, 11, us), pair(11, 8, 1000*us), pair(8, 9, us), pair(9, 10, us))
	for i := range 7 {
		large.Cables = append(large.Cables, pair(i, 8+i/3, us))
	}
	for _, c := range []struct {
		what  string
		c     Config
		parts int
		want  string
	}{
		{"pods", pods, 2, "2 [0 0 1 1 0 0 1 1 0 0 1 1 0 1]"},
		{"sites", sites, 2, "2 [0 1 0 1 0 1 0 1]"},
		{"sites, in 4", sites, 4, "4 [0 1 2 3 0 1 2 3]"},
		{"a site and a host", large, 2, "2 [0 0 0 1 1 1 1 0 0 1 1 0]"},
	} {
		if got := divided(c.c, c.parts); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// inParts is a star whose hosts are in two parts.
func inParts(t *testing.T, parallel func(int, func(int))) *Network {
	t.Helper()
	c := star(4, Switch{Buffer: 1 << 20}, 100*gbit, event.Microsecond)
	c.Parts, c.Parallel = 2, parallel
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// teller is a host that does something when its timer is due.
type teller struct {
	sink
	f func(Time)
}

func (h teller) Timer(now Time) { h.f(now) }

// Nothing happens in a part, in all, or until now: time passes all the same,
// and timers and scripts that were cancelled or set meanwhile keep theirs.
func TestPartsWithoutEvents(t *testing.T) {
	t.Parallel()
	n := inParts(t, nil)
	if n.Run(0) != 0 || n.Run(event.Never) != 0 || n.Now() != 0 || !n.Idle() {
		t.Errorf("nothing to do: it is %v", n.Now())
	}
	if n.Run(5*event.Microsecond) != 0 || n.Now() != 5*event.Microsecond || n.TimeOf(3) != n.Now() {
		t.Errorf("it is %v, and %v for host 3", n.Now(), n.TimeOf(3))
	}
	var at []Time
	tell := func(now Time) { at = append(at, now) }
	n.Attach(3, teller{f: tell})
	n.SetTimer(3, 7*event.Microsecond)
	n.SetTimer(3, event.Never)
	n.SetTimer(3, 9*event.Microsecond)
	n.At(6*event.Microsecond, func() { n.At(n.Now(), func() { tell(n.Now()) }) })
	n.At(20*event.Microsecond, func() { t.Error("behind the end") })
	if got := n.Run(9 * event.Microsecond); got != 3 || !slices.Equal(at, []Time{6 * event.Microsecond, 9 * event.Microsecond}) {
		t.Errorf("%d events, at %v", got, at)
	}
	if n.Idle() || n.Now() != 9*event.Microsecond {
		t.Errorf("idle at %v", n.Now())
	}
	if n.Run(n.Now()) != 0 || n.Run(n.Now()-1) != 0 || n.Now() != 9*event.Microsecond {
		t.Errorf("a run of no time: it is %v", n.Now())
	}
}

// A time has passed when Run returns: what is set then is not early, in no
// part.
func TestPartsHaveOneTime(t *testing.T) {
	t.Parallel()
	n := inParts(t, nil)
	var at []Time
	tell := func(now Time) { at = append(at, now) }
	n.Attach(0, teller{f: tell})
	n.Attach(3, teller{f: tell})
	n.SetTimer(0, 4*event.Microsecond)
	n.Run(event.Never)
	if n.Now() != 4*event.Microsecond {
		t.Errorf("it is %v after the last event", n.Now())
	}
	n.SetTimer(3, 0)
	n.SetTimer(0, n.Now()+1)
	n.At(0, func() { tell(-n.Now()) })
	n.Run(event.Never)
	slices.Sort(at)
	if want := []Time{-4 * event.Microsecond, 4 * event.Microsecond, 4 * event.Microsecond, 4*event.Microsecond + 1}; !slices.Equal(at, want) {
		t.Errorf("events at %v, want %v", at, want)
	}
}

// panicsWith calls f, and returns what it has panicked with.
func panicsWith(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return "nothing"
}

// What is about the whole network cannot be called by hosts that run beside
// others. A host that panics does so in Run, with its stack, whichever part it
// is in; the other part is not left hanging.
func TestPartsPanic(t *testing.T) {
	t.Parallel()
	c := cores.New(2)
	defer c.Close()
	for _, parallel := range []func(int, func(int)){nil, c.Do} {
		for _, host := range []int{0, 3} {
			for what, f := range map[string]func(n *Network){
				"At": func(n *Network) { n.At(0, func() {}) }, "SetCable": func(n *Network) { n.SetCable(0, false) },
				"Now": func(n *Network) { n.Now() }, "Run": func(n *Network) { n.Run(event.Second) }, "parts_test.go": func(*Network) { boom() },
			} {
				n := inParts(t, parallel)
				for i := range 4 {
					n.Attach(i, teller{f: func(Time) {
						if i == host {
							f(n)
						}
					}})
					n.SetTimer(i, event.Microsecond)
				}
				got := panicsWith(func() { n.Run(event.Second) })
				if parallel == nil && what == "parts_test.go" || host == 0 && what == "parts_test.go" {
					what = "boom" // the stack is the caller's own
				}
				if !strings.Contains(got, what) {
					t.Errorf("host %d: %s, want %s", host, got, what)
				}
				if got := panicsWith(func() { n.Run(event.Second) }); !strings.Contains(got, "panicked") {
					t.Errorf("after a panic: %s", got)
				}
			}
		}
	}
}

func boom() { panic("boom") }

// Nothing on the way of packets between parts allocates.
func TestPartsAllocateNothing(t *testing.T) {
	c := clos(4, 4, 2, Switch{Buffer: 1 << 24}, 100*gbit, event.Microsecond)
	c.Parts = 2
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Hosts {
		n.Attach(i, &permutation{n: n, number: i, to: (i + 8) % c.Hosts, left: 1 << 30})
		n.Kick(i, 0)
	}
	n.Run(event.Millisecond)
	if got := testing.AllocsPerRun(10, func() { n.Run(n.Now() + 100*event.Microsecond) }); got > 0 {
		t.Errorf("%v allocations", got)
	}
}
