package topology

import (
	"strings"
	"testing"
)

// isCycle checks that each channel begins where the one before it ends.
func isCycle(g *Graph, c []Channel) bool {
	for i, ch := range c {
		l := g.Link(ch.Link)
		if ch.To != c[(i+1)%len(c)].From || l.A+l.B != ch.From+ch.To {
			return false
		}
	}
	return len(c) > 0
}

// TestRingsHaveCycles: by shortest ways, from four switches on.
func TestRingsHaveCycles(t *testing.T) {
	t.Parallel()
	for n := 2; n < 9; n++ {
		g := ring(t, n, 1)
		c := cycleOf(g.Shortest(nil))
		if want := n >= 4; want != (c != nil) {
			t.Errorf("%d switches: cycle %v", n, c)
		}
		if c != nil && (!isCycle(g, c) || len(c) != n) {
			t.Errorf("%d switches: %v is no cycle", n, c)
		}
		if c := cycleOf(g.UpDown(nil)); c != nil {
			t.Errorf("%d switches, up and down: %v", n, c)
		}
	}
}

// TestLoopsAreCycles: a routing loop of two switches waits for itself.
func TestLoopsAreCycles(t *testing.T) {
	t.Parallel()
	g := ring(t, 2, 1)
	tables := g.Shortest(nil)
	if c := cycleOf(tables); c != nil {
		t.Fatalf("cycle %v before there is a loop", c)
	}
	if err := tables.Set(3, 1, g.PortOf(3, 2)); err != nil { // back to where it came from
		t.Fatal(err)
	}
	if c := cycleOf(tables); !isCycle(g, c) || len(c) != 2 {
		t.Errorf("cycle %v", c)
	}
}

// TestBounceInClos is the example of Tagger (Hu et al., CoNEXT 2017): ways
// that come down to a leaf and go up again make a cycle of two leaves and two
// spines. One such way alone does not.
func TestBounceInClos(t *testing.T) {
	t.Parallel()
	g := leafSpine(t, 4, 2, 1) // hosts 0 to 3, leaves 4 to 7, spines 8 and 9
	links := func(nodes ...int32) []int32 {
		var out []int32
		for i := range nodes[1:] {
			l, ok := g.LinkBetween(nodes[i], nodes[i+1])
			if !ok {
				t.Fatalf("no link from %d to %d", nodes[i], nodes[i+1])
			}
			out = append(out, l)
		}
		return out
	}
	d := NewDependencies(g)
	if err := d.AddPath(0, links(0, 4, 8, 5, 9, 7, 3)...); err != nil { // bounces at leaf 5
		t.Fatal(err)
	}
	if c := d.Cycle(); c != nil {
		t.Errorf("one bounce makes the cycle %v", c)
	}
	if err := d.AddPath(1, append(links(1, 5, 9, 4, 8, 6, 2), 0)...); err == nil || d.Cycle() != nil {
		t.Errorf("a path that is refused, %v, makes the cycle %v", err, d.Cycle())
	}
	if err := d.AddPath(1, links(1, 5, 9, 4, 8, 6, 2)...); err != nil { // bounces at leaf 4
		t.Fatal(err)
	}
	if c := d.Cycle(); !isCycle(g, c) || len(c) != 4 {
		t.Errorf("two bounces make the cycle %v, want 4 channels", c)
	}
	for err, want := range map[error]string{
		d.AddPath(99):         "nodes 0 to 9",
		d.AddPath(0, 99):      "link 99",
		d.AddPath(0, 0, 1):    "at place 1",
		d.AddPath(-1, 0):      "node -1",
		d.AddPath(3, -1):      "link -1",
		d.AddPath(0, 0, 4, 1): "link 1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %q", err, want)
		}
	}
}
