package topology

import (
	"strings"
	"testing"
)

// With a network inside each machine what GPUs of one machine have for each
// other goes by its switch, and all else by rails, as without: no GPU forwards
// for another one, though that way would be as short. It is the same with
// routes that go up and down.
func TestRailsWithScaleUp(t *testing.T) {
	t.Parallel()
	inside := Cable{Rate: 9 * cable.Rate, Delay: cable.Delay / 2}
	g, err := Rails{Machines: 4, GPUs: 3, PerLeaf: 2, Spines: 2, Host: cable, ScaleUp: inside}.Graph()
	must(t, g, err)
	const hosts, leaves, spines, machines = 12, 6, 2, 4
	if g.Hosts() != hosts || g.Switches() != leaves+spines+machines+hosts || len(g.Links()) != 3*hosts+leaves*spines || g.HostRate() != 10*cable.Rate {
		t.Fatalf("%d hosts, %d switches, %d links, %d bit/s", g.Hosts(), g.Switches(), len(g.Links()), g.HostRate())
	}
	for name, tables := range map[string]*Tables{"shortest": g.Shortest(nil), "up and down": g.UpDown(nil)} {
		for x := range int32(hosts) {
			for y := range int32(hosts) {
				if x == y {
					continue
				}
				path, err := tables.Path(x, y, nil)
				if err != nil {
					t.Fatalf("%s, from %d to %d: %v", name, x, y, err)
				}
				want, middle := 6, Cable{}
				switch {
				case x/3 == y/3:
					want, middle = 4, inside
				case x%3 == y%3 && x/6 == y/6:
					want, middle = 4, cable
				}
				if len(path) != want || want == 4 && g.Link(path[1]).Cable != middle {
					t.Errorf("%s, from %d to %d: %v", name, x, y, path)
				}
				for _, l := range path[1 : len(path)-1] {
					if want == 6 && g.Link(l).Cable == inside {
						t.Errorf("%s, from %d to %d: %v is inside a machine", name, x, y, l)
					}
				}
			}
		}
	}
	// Rails that are apart are joined inside machines only.
	g, err = Rails{Machines: 2, GPUs: 2, Host: cable, ScaleUp: inside}.Graph()
	must(t, g, err)
	for y, want := range []uint64{0, 1, 1, 0} {
		if n, err := g.Shortest(nil).Ways(0, int32(y)); y > 0 && (n != want || err != nil) {
			t.Errorf("from 0 to %d: %d ways, %v", y, n, err)
		}
	}
	for want, c := range map[string]Rails{
		"one GPU has no network inside": {Machines: 2, GPUs: 1, Host: cable, ScaleUp: cable},
		"at most":                       {Machines: MaxNodes / 4, GPUs: 2, Host: cable, ScaleUp: cable},
		"0 bit/s":                       {Machines: 2, GPUs: 2, Host: cable, ScaleUp: Cable{Delay: 1}},
	} {
		if _, err := c.Graph(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", c, err, want)
		}
	}
}
