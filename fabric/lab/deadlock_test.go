package lab

import (
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/fabric/network"
	"github.com/gosoftroce/rocev2/fabric/plot"
	"github.com/gosoftroce/rocev2/fabric/topology"
)

// injector is a host that sends packets to another one at an even rate, as
// long as it is not paused. It does not make up for what it could not send.
type injector struct {
	net   *network.Network
	host  int
	dst   uint16
	gap   event.Time // between two packets; 0: it sends none
	until event.Time
	next  event.Time
	sport uint16 // grows with each packet
	dscp  uint8
	got   int
}

const (
	injectedSize = 1124 // on the wire: a packet with 1 KiB of payload
	injectedHops = 16
)

func (h *injector) start() {
	h.next = h.net.Now()
	h.net.SetTimer(h.host, h.next)
}

func (h *injector) Pull(now event.Time, _ int, paused uint8, p *network.Packet) bool {
	if h.gap == 0 || now < h.next || now >= h.until || paused>>h.net.ClassOf(h.dscp)&1 != 0 {
		return false
	}
	*p = network.Packet{Dst: h.dst, SrcPort: h.sport, Size: injectedSize, DSCP: h.dscp, Hops: injectedHops}
	h.sport++
	h.next = max(h.next+h.gap, now)
	h.net.SetTimer(h.host, h.next)
	return true
}

func (h *injector) Timer(event.Time)                            { h.net.Kick(h.host, 0) }
func (h *injector) Receive(event.Time, int, *network.Packet)    { h.got++ }
func (h *injector) Dropped(_ *network.Packet, why network.Drop) {}

// loop is a ring of switches that send packets for one host around for ever.
type loop struct {
	switches int
	percent  int // of n*B/t that is injected
	watchdog event.Time
	// look, if not nil, is called each 50 us.
	look func(now event.Time, t network.Totals)
}

type loopResult struct {
	stuck   uint64 // packets that are still inside when nothing moves any more
	sent    uint64
	expired uint64
	shot    uint64 // by the watchdog
	pauses  uint64
	digest  uint64
}

const loopRate = 40 * topology.Gbps

func (l loop) run(t *testing.T) loopResult {
	t.Helper()
	cable := topology.Cable{Rate: loopRate, Delay: topology.Microsecond}
	g, err := topology.Ring(l.switches, 1, cable, cable)
	if err != nil {
		t.Fatal(err)
	}
	// Everything for the last host goes on around the ring, and is never
	// delivered.
	tables, dst := g.Shortest(nil), g.Hosts()-1
	for i := range g.Switches() {
		from := g.Hosts() + i
		link, _ := g.LinkBetween(from, g.Hosts()+(i+1)%g.Switches())
		if err := tables.Set(from, dst, g.PortOf(from, link)); err != nil {
			t.Fatal(err)
		}
	}
	profile := topology.DCQCN()
	profile.Buffer = 1 << 20
	c, err := g.Network(topology.Plan{
		Profile: profile, Tables: tables, Static: true, MTU: 1200,
		Watchdog: network.WatchdogConfig{Detect: l.watchdog, Restore: l.watchdog},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := &injector{net: n, dst: uint16(dst), dscp: profile.RoCE, until: 50 * event.Millisecond}
	// n*B/t, and the time of a packet at that rate.
	limit := int64(l.switches) * loopRate / injectedHops
	h.gap = event.Time(injectedSize * 8 * int64(event.Second) / 100 * 100 * 100 / (limit * int64(l.percent)))
	n.Attach(0, h)
	h.start()
	if l.look != nil {
		for now := event.Time(0); now < h.until; now += 50 * event.Microsecond {
			n.Run(now)
			l.look(now, n.Totals())
		}
	}
	n.Run(100 * event.Millisecond)
	if err := n.Check(); err != nil {
		t.Error(err)
	}
	total := n.Totals()
	return loopResult{
		stuck: total.Inside(), sent: total.Sent, expired: total.Drops[network.HopLimit],
		shot: total.Drops[network.Watchdog], pauses: total.XOFFs, digest: n.Digest(),
	}
}

// TestDeadlock is the experiment of "Deadlocks in datacenter networks: why do
// they form, and how to avoid them" (Hu et al., HotNets 2016): n switches of a
// lossless network send a flow in a circle, until its hop limit t ends it. The
// circle stands still for ever if and only if more than n*B/t is injected.
func TestDeadlock(t *testing.T) {
	t.Parallel()
	long(t)
	var b strings.Builder
	fmt.Fprintf(&b, "A ring of switches that pass packets on around it, %d Gb/s, hop limit %d, 50 ms.\n", loopRate/topology.Gbps, injectedHops)
	fmt.Fprintf(&b, "stuck: packets that are inside 50 ms after the last was sent.\n\n")
	fmt.Fprintf(&b, "switches  watchdog  injected  of n*B/t     sent  expired    shot  stuck  pauses\n")
	for _, l := range []loop{
		{switches: 2, percent: 50}, {switches: 2, percent: 90}, {switches: 2, percent: 98}, {switches: 2, percent: 110}, {switches: 2, percent: 150}, {switches: 2, percent: 150, watchdog: event.Millisecond},
		{switches: 3, percent: 50}, {switches: 3, percent: 90}, {switches: 3, percent: 98}, {switches: 3, percent: 110}, {switches: 3, percent: 150}, {switches: 3, percent: 150, watchdog: event.Millisecond},
	} {
		r := l.run(t)
		limit := float64(l.switches) * float64(loopRate) / injectedHops / 1e9
		dog := "none"
		if l.watchdog > 0 {
			dog = l.watchdog.String()
		}
		fmt.Fprintf(&b, "%8d  %8s  %8.2f  %6d %%  %7d  %7d  %6d  %5d  %6d\n",
			l.switches, dog, limit*float64(l.percent)/100, l.percent, r.sent, r.expired, r.shot, r.stuck, r.pauses)
		if l.watchdog == 0 && (l.percent == 98 || l.percent == 110) {
			inManual(t, fmt.Sprintf("| %d | %v Gb/s | %d %% | %d |", l.switches, limit*float64(l.percent)/100, l.percent, r.stuck))
		}
		if want := l.percent > 100 && l.watchdog == 0; want != (r.stuck > 0) {
			t.Errorf("%d switches, %d %% of n*B/t, watchdog %s: %d packets are stuck", l.switches, l.percent, dog, r.stuck)
		}
		if again := l.run(t); again != r {
			t.Errorf("%+v, and the same again: %+v", r, again)
		}
	}
	golden(t, "deadlock", b.String())
}

// TestDrawingOfDeadlock draws how fast packets of the circle come to their end.
func TestDrawingOfDeadlock(t *testing.T) {
	t.Parallel()
	long(t)
	p := plot.Plot{
		Title: "deadlock: two switches that send packets to and fro",
		X:     timeAxis, Y: plot.Axis{Label: "packets that end, Gb/s"},
		Rules: []plot.Rule{{Name: "n B/t", Y: 5}},
	}
	for _, c := range []struct {
		name     string
		percent  int
		watchdog event.Time
	}{{"98 %", 98, 0}, {"110 %", 110, 0}, {"150 %", 150, 0}, {"150 %, watchdog 1 ms", 150, event.Millisecond}} {
		line, last := plot.Line{Name: c.name, Steps: true}, uint64(0)
		loop{switches: 2, percent: c.percent, watchdog: c.watchdog, look: func(now event.Time, t network.Totals) {
			if now > 25*event.Millisecond || now%(500*event.Microsecond) != 0 {
				return
			}
			ended := t.Dropped()
			line.Points = append(line.Points, plot.Point{X: millis(Time(now)), Y: float64((ended-last)*injectedSize*8) / 500e3})
			last = ended
		}}.run(t)
		p.Lines = append(p.Lines, line)
	}
	var b bytes.Buffer
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH != "amd64" {
		return // coordinates are rounded floats
	}
	goldenFile(t, filepath.Join("..", "..", "docs", "fabric", "deadlock-rates.svg"), b.String())
}

// flood is a host that sends packets to several others in turn.
type flood struct {
	class uint8
	dscp  uint8
	to    []uint16
	left  int
}

func (f *flood) Pull(_ event.Time, _ int, paused uint8, p *network.Packet) bool {
	if f.left == 0 || paused>>f.class&1 != 0 {
		return false
	}
	f.left--
	*p = network.Packet{Dst: f.to[f.left%len(f.to)], SrcPort: uint16(f.left), Size: injectedSize, DSCP: f.dscp}
	return true
}

func (f *flood) Receive(event.Time, int, *network.Packet)  {}
func (f *flood) Timer(event.Time)                          {}
func (f *flood) Dropped(_ *network.Packet, _ network.Drop) {}

// flooded returns how many packets are stuck for ever in a network without
// some links, with small buffers, when every host sends to several others.
func flooded(t *testing.T, g *topology.Graph, failed topology.LinkSet, updown bool, seed uint64) uint64 {
	t.Helper()
	profile := topology.DCQCN()
	c, err := g.Network(topology.Plan{
		Profile: profile, UpDown: updown, Failed: failed, Static: true, MTU: 1200, Seed: seed,
		Tune: func(node int32, s *network.Switch) {
			mtu, ports := int64(1200), int64(len(g.Ports(node)))
			head := network.Headroom(loopRate, event.Microsecond, int(mtu))
			s.Buffer = ports*(head+mtu) + 20*mtu
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := network.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := event.NewRand(seed, 1)
	hosts := uint64(g.Hosts())
	for i := range int(hosts) {
		f := &flood{dscp: profile.RoCE, class: n.ClassOf(profile.RoCE), left: 150}
		for range 3 {
			f.to = append(f.to, uint16((uint64(i)+1+r.Uint64n(hosts-1))%hosts))
		}
		n.Attach(i, f)
		n.Kick(i, 0)
	}
	n.Run(event.Never)
	if err := n.Check(); err != nil {
		t.Error(err)
	}
	if d := n.Totals().Drops[network.HeadroomFull]; d != 0 {
		t.Errorf("seed %d: %d packets are lost in a lossless network", seed, d)
	}
	return n.Totals().Inside()
}

// TestUpDownDoesNotDeadlock floods networks in which links have failed by
// seeds. By shortest ways some have buffers that wait for each other in a
// circle, and some of those stand still for ever. By ways that go up and then
// down none does.
func TestUpDownDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	long(t)
	cable := topology.Cable{Rate: loopRate, Delay: topology.Microsecond}
	clos, err := topology.LeafSpine{Leaves: 4, Spines: 3, HostsPerLeaf: 4, Host: cable}.Graph()
	if err != nil {
		t.Fatal(err)
	}
	ring, err := topology.Ring(5, 2, cable, cable)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Floods of small buffers, with up to half of the links between switches failed.\n\n")
	fmt.Fprintf(&b, "network     seeds  routes        with a cycle  deadlocks\n")
	for _, c := range []struct {
		name  string
		g     *topology.Graph
		seeds int
	}{{"leaf-spine", clos, 1000}, {"ring", ring, 200}} {
		for _, updown := range []bool{false, true} {
			cycles, dead := 0, 0
			for seed := range uint64(c.seeds) {
				failed := failures(c.g, seed)
				tables := c.g.Shortest(failed)
				if updown {
					tables = c.g.UpDown(failed)
				}
				d := topology.NewDependencies(c.g)
				d.AddTables(tables)
				cycle := d.Cycle() != nil
				if cycle {
					cycles++
				}
				if !cycle && !updown {
					continue // it cannot, and up and down ways show that
				}
				if flooded(t, c.g, failed, updown, seed) > 0 {
					dead++
					if updown {
						t.Errorf("%s, seed %d: up and down ways came to a deadlock", c.name, seed)
					}
				}
			}
			routes := map[bool]string{false: "shortest", true: "up and down"}[updown]
			fmt.Fprintf(&b, "%-10s  %5d  %-11s  %13d  %9d\n", c.name, c.seeds, routes, cycles, dead)
			if updown != (cycles == 0) || updown != (dead == 0) {
				t.Errorf("%s, %s: %d cycles and %d deadlocks in %d seeds", c.name, routes, cycles, dead, c.seeds)
			}
		}
	}
	golden(t, "updown", b.String())
}

// failures returns up to half of the links between switches.
func failures(g *topology.Graph, seed uint64) (failed topology.LinkSet) {
	r := event.NewRand(seed, 2)
	first := uint64(g.Hosts()) // the links of hosts come first
	links := uint64(len(g.Links())) - first
	for range r.Uint64n(links/2 + 1) {
		failed.Add(int32(first + r.Uint64n(links)))
	}
	return failed
}

// TestDeadlockOfAdapters plays the scenario of the same name: real queue pairs
// on shortest ways around a ring stand still, and what helps against it.
func TestDeadlockOfAdapters(t *testing.T) {
	t.Parallel()
	text, err := Text("deadlock")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Five switches in a ring, 10 hosts of 40 Gb/s write to hosts two switches on, 10 ms.\n\n")
	fmt.Fprintf(&b, "                        Gb/s  packets sent  delivered  dropped  pauses\n")
	for _, c := range []struct {
		name   string
		change func(s *Scenario)
		least  Rate // together
	}{
		{"pauses alone", func(*Scenario) {}, 0},
		{"up and down routes", func(s *Scenario) { s.Network.UpDown = true }, 50 * Gbps},
		{"watchdog of 1 ms", func(s *Scenario) { s.Network.Watchdog = 1000 * us }, 1 * Gbps},
		{"dcqcn", func(s *Scenario) { s.Adapter.Control, s.Adapter.NoECN = "dcqcn", false }, 20 * Gbps},
		{"window", func(s *Scenario) { s.Adapter = Adapter{} }, 80 * Gbps},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.change(&s)
		r := play(t, s)
		_, sum, _ := r.Rates()
		fmt.Fprintf(&b, "%-18s  %8.2f  %12d  %9d  %7d  %6d\n", c.name, float64(sum)/float64(Gbps),
			r.Totals.Sent, r.Totals.Delivered, r.Totals.Dropped(), r.Totals.XOFFs)
		if sum < c.least {
			t.Errorf("%s: %v together, want %v", c.name, sum, c.least)
		}
		var out strings.Builder
		r.WriteTo(&out)
		said := strings.Contains(out.String(), "the network stands still since ")
		if stuck := r.Totals.Inside() > 500 && sum < 1*Gbps; stuck != (c.least == 0) || said != stuck || r.Still > 0 != stuck {
			t.Errorf("%s: %v together, %d packets are inside, still since %v:\n%s", c.name, sum, r.Totals.Inside(), r.Still, &out)
		}
	}
	golden(t, "ring", b.String())
}
