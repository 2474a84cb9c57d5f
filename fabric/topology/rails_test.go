package topology

import (
	"strings"
	"testing"
)

// TestRails: GPUs of one number have one switch between them, or a spine if
// their machines have other leaves; all others have a spine.
func TestRails(t *testing.T) {
	t.Parallel()
	g, err := Rails{Machines: 5, GPUs: 4, PerLeaf: 2, Spines: 3, Host: cable}.Graph()
	must(t, g, err)
	if g.Hosts() != 20 || g.Switches() != 3*4+3 || len(g.Links()) != 20+12*3 {
		t.Fatalf("%d hosts, %d switches, %d links", g.Hosts(), g.Switches(), len(g.Links()))
	}
	tables := g.Shortest(nil)
	for x := range int32(20) {
		for y := range int32(20) {
			want := 4
			if x%4 == y%4 && x/8 == y/8 {
				want = 2
			}
			if path, err := tables.Path(x, y, nil); err != nil || x != y && len(path) != want {
				t.Errorf("from %d to %d: %v, %v", x, y, path, err)
			}
		}
	}
	only, err := Rails{Machines: 3, GPUs: 2, Host: cable}.Graph()
	must(t, only, err)
	if n, err := only.Shortest(nil).Ways(0, 4); n != 1 || err != nil {
		t.Errorf("on a rail: %d ways, %v", n, err)
	}
	if n, err := only.Shortest(nil).Ways(0, 1); n != 0 || err != nil {
		t.Errorf("from rail to rail: %d ways, %v", n, err)
	}
	for want, c := range map[string]Rails{
		"0 machines": {GPUs: 1, Host: cable}, "0 GPUs": {Machines: 1, Host: cable}, "-1 spines": {Machines: 1, GPUs: 1, Spines: -1, Host: cable},
		"no spines: the machines are apart": {Machines: 3, GPUs: 2, PerLeaf: 2, Host: cable}, "0 bit/s": {Machines: 2, GPUs: 2},
		"at most": {Machines: MaxNodes, GPUs: MaxNodes, PerLeaf: 1, Spines: MaxNodes, Host: cable},
	} {
		if _, err := c.Graph(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
}
