package lab

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/adapter"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/topology"
	"github.com/gosoftroce/rocev2/ib"
)

// spread sends a flow from each of n hosts of a leaf to a host of another one,
// over n spines. It returns how many of the n uplinks carry something, and how
// many packets the busiest one does.
func spread(t *testing.T, g *topology.Graph, routing network.Routing, packets int, seed uint64) (used, most int) {
	t.Helper()
	n := int(g.Hosts()) / 2
	profile := topology.Spectrum()
	c, err := g.Network(topology.Plan{Profile: profile, Routing: routing, Gap: 50 * event.Microsecond, MTU: 1200, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	net, err := network.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := event.NewRand(seed, 3)
	for i := range n {
		net.Attach(i, &flow{dst: uint16(n + i), sport: uint16(49152 + r.Uint64n(16384)), dscp: profile.RoCE, left: packets})
		net.Kick(i, 0)
	}
	net.Run(event.Never)
	if got := net.Totals(); got.Delivered != uint64(n*packets) {
		t.Errorf("%+v", got)
	}
	for port := range n {
		// The ports after those of the hosts go to the spines.
		if carried := int(net.Port(2*n, n+port).Link().Packets); carried > 0 {
			used++
			most = max(most, carried)
		}
	}
	return used, most
}

// flow is a host that sends packets of one flow.
type flow struct {
	dst, sport uint16
	dscp       uint8
	left       int
}

func (f *flow) Pull(_ event.Time, _ int, paused uint8, p *network.Packet) bool {
	if f.left == 0 || paused != 0 {
		return false
	}
	f.left--
	*p = network.Packet{Dst: f.dst, SrcPort: f.sport, Size: injectedSize, DSCP: f.dscp}
	return true
}

func (f *flow) Receive(event.Time, int, *network.Packet) {}
func (f *flow) Timer(event.Time)                         {}
func (f *flow) Dropped(*network.Packet, network.Drop)    {}

// TestUplinks counts the uplinks that n flows use of n. By ECMP these are
// balls that are thrown into bins: 1-(1-1/n)^n of them are used, and one
// carries several flows. Spraying uses all of them alike.
func TestUplinks(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	fmt.Fprintf(&b, "n flows from one leaf to another over n spines, 1000 seeds (10 of the others).\n")
	fmt.Fprintf(&b, "used: of the uplinks. busiest: packets on the busiest one, of a flow's.\n\n")
	fmt.Fprintf(&b, " n  routing      used    1-(1-1/n)^n  busiest\n")
	for _, n := range []int{2, 4, 8, 16, 32} {
		cable := topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond}
		g, err := topology.LeafSpine{Leaves: 2, Spines: n, HostsPerLeaf: n, Host: cable}.Graph()
		if err != nil {
			t.Fatal(err)
		}
		want := 1 - math.Pow(1-1/float64(n), float64(n))
		for _, r := range []struct {
			name    string
			routing network.Routing
			packets int
			seeds   int
		}{
			{"ecmp", network.ECMP, 1, 1000},
			{"flowlet", network.Flowlet, 200, 10},
			{"least-queue", network.LeastQueue, 200, 10},
			{"spray", network.Spray, 200, 10},
		} {
			used, most := 0, 0
			for seed := range uint64(r.seeds) {
				u, m := spread(t, g, r.routing, r.packets, seed)
				used += u
				most += m
			}
			share := float64(used) / float64(n*r.seeds)
			busiest := float64(most) / float64(r.packets*r.seeds)
			fmt.Fprintf(&b, "%2d  %-11s  %6.4f  %11.4f  %7.3f\n", n, r.name, share, want, busiest)
			switch r.routing {
			case network.ECMP:
				if math.Abs(share-want) > .02*want {
					t.Errorf("%d flows use %.4f of %d uplinks, want %.4f within 2 %%", n, share, n, want)
				}
			case network.Spray:
				if share != 1 || busiest > 1.1 {
					t.Errorf("spraying uses %.4f of the uplinks, the busiest has %.3f flows", share, busiest)
				}
			}
		}
	}
	golden(t, "uplinks", b.String())
}

// cut has flows of real adapters between the hosts of several leaves, and cuts
// an uplink in their midst. It returns how many of those that went by it, and
// of the others, have completed well.
type cut struct {
	timeout  uint8 // code of the local ACK timeout
	converge event.Time
	foreign  bool
}

type cutResult struct {
	hit, hitOK, other, otherOK int
	lost                       uint64
	last                       event.Time
	digest                     uint64
}

func (c cut) run(t *testing.T) (r cutResult) {
	t.Helper()
	const perLeaf, leaves = 8, 4
	cable := topology.Cable{Rate: 100 * topology.Gbps, Delay: topology.Microsecond}
	g, err := topology.LeafSpine{Leaves: leaves, Spines: 4, HostsPerLeaf: perLeaf, Host: cable}.Graph()
	if err != nil {
		t.Fatal(err)
	}
	profile := topology.Spectrum()
	config, err := g.Network(topology.Plan{Profile: profile, Converge: c.converge, Seed: 11})
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.New(config)
	if err != nil {
		t.Fatal(err)
	}
	a, err := adapter.New(n, int(g.Hosts()), adapter.Config{Seed: 11})
	if err != nil {
		t.Fatal(err)
	}
	leaf, spine := g.Hosts(), g.Hosts()+leaves+1
	link, _ := g.LinkBetween(leaf, spine)
	// Data and acknowledgements of a flow may go by it, both ways.
	crosses := make([]bool, g.Hosts())
	n.Tap(func(s network.Sight) {
		if !s.Pause && (s.Node == int(leaf) && s.Port == int(g.PortOf(leaf, link)) || s.Node == int(spine) && s.Port == int(g.PortOf(spine, link))) {
			flow := s.Packet.Src
			if int(flow)%(2*perLeaf) >= perLeaf {
				flow = s.Packet.Dst
			}
			crosses[flow] = true
		}
	})
	status := make([]ib.Status, g.Hosts())
	for from := range int(g.Hosts()) {
		if from%(2*perLeaf) >= perLeaf {
			continue // leaves 1 and 3 receive
		}
		x, _, err := a.Connect(from, from+perLeaf, adapter.Connection{
			Foreign: c.foreign, TrafficClass: profile.RoCE<<2 | network.ECT0, Timeout: c.timeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		status[from] = ib.Status(255)
		err = x.Post(adapter.Request{Op: ib.OpWrite, Bytes: 8 << 20, Done: func(d adapter.Completion) {
			status[from] = d.Status
			r.last = max(r.last, d.End)
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.Run(300 * event.Microsecond)
	n.SetCable(int(link), false)
	n.Run(event.Second)
	for from := range status {
		if from%(2*perLeaf) >= perLeaf {
			continue
		}
		ok := status[from] == ib.StatusSuccess
		switch {
		case crosses[from] && ok:
			r.hitOK++
		case ok:
			r.otherOK++
		}
		if crosses[from] {
			r.hit++
		} else {
			r.other++
		}
	}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	r.lost, r.digest = n.Totals().Drops[network.CableDown], n.Digest()
	return r
}

// TestCutUplink cuts an uplink that carries some of the flows. Until the tables
// follow, what goes by it is lost. The flows complete all the same where the
// retries of their queue pairs last longer than that (7 * timeout), and else
// those, and no others, end with an error.
func TestCutUplink(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintf(&b, "4 leaves, 4 spines, 100 Gb/s: 16 WRITEs of 8 MiB, an uplink is cut after 300 us.\n")
	fmt.Fprintf(&b, "hit: flows whose packets or acknowledgements went by it.\n\n")
	fmt.Fprintf(&b, "tables after  7 timeouts  recovery        hit  completed  others  completed    lost      last\n")
	for _, c := range []cut{
		{timeout: 10, converge: event.Millisecond},
		{timeout: 10, converge: 10 * event.Millisecond},
		{timeout: 8, converge: 100 * event.Millisecond},
		{timeout: 10, converge: event.Millisecond, foreign: true},
		{timeout: 10, converge: 10 * event.Millisecond, foreign: true},
		{timeout: 8, converge: 100 * event.Millisecond, foreign: true},
	} {
		r := c.run(t)
		retries := 7 * 4096 * event.Nanosecond << c.timeout
		recovery := "selective"
		if c.foreign {
			recovery = "go-back-N"
		}
		fmt.Fprintf(&b, "%12v  %7.1f ms  %-14s  %3d  %9d  %6d  %9d  %6d  %6.3f ms\n", c.converge,
			float64(retries)/float64(event.Millisecond), recovery, r.hit, r.hitOK, r.other, r.otherOK, r.lost,
			float64(r.last)/float64(event.Millisecond))
		want := 0
		if retries > c.converge {
			want = r.hit
		}
		if r.hit == 0 || r.other == 0 || r.otherOK != r.other || r.hitOK != want {
			t.Errorf("%+v: %+v", c, r)
		}
	}
	golden(t, "cut", b.String())
}
