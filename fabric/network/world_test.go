package network

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

var worlds = flag.Uint64("worlds", 0, "random networks that TestWorlds makes; 0: a few hundred")

// actor is a host of a random network: it sends random packets at random times,
// and now and then pauses its switch for a while.
type actor struct {
	n      *Network
	number int
	r      event.Rand
	left   int
	got    uint64
	next   uint32
	shared *handles
}

// handles are those of packets that are under way, of all hosts.
type handles struct {
	sync.Mutex
	all map[uint32]bool
}

func (h *actor) Pull(now Time, _ int, paused uint8, p *Packet) bool {
	if h.left == 0 {
		return false
	}
	class := uint8(h.r.Uint64n(NumClasses))
	if paused>>class&1 != 0 || h.r.Uint64n(20) == 0 {
		h.n.SetTimer(h.number, now+Time(h.r.Uint64n(uint64(2*event.Microsecond))))
		return false
	}
	h.left--
	p.Handle = uint32(h.number)<<16 | h.next
	h.next++
	h.shared.Lock()
	h.shared.all[p.Handle] = true
	h.shared.Unlock()
	p.Dst = uint16(h.r.Uint64n(uint64(len(h.n.hosts)) + uint64(h.r.Uint64n(50)/49)))
	p.Size = uint16(h.r.Uint64n(uint64(h.n.mtu) + 1))
	p.SrcPort, p.DSCP, p.ECN = uint16(h.r.Uint64n(4)), class*8|uint8(h.r.Uint64n(4))<<6, uint8(h.r.Uint64())
	p.Hops = uint8(h.r.Uint64n(12))
	return true
}

func (h *actor) Receive(now Time, port int, p *Packet) {
	h.got++
	h.gone(p)
	if h.r.Uint64n(4) == 0 {
		h.n.Kick(h.number, port)
	}
	switch h.r.Uint64n(50) {
	case 0:
		h.n.Pause(h.number, port, uint8(h.r.Uint64()))
		h.n.SetTimer(h.number, now+Time(h.r.Uint64n(uint64(100*event.Microsecond))))
	case 1:
		h.n.Pause(h.number, port, 0)
	}
}

func (h *actor) Timer(Time) {
	for port := range h.n.Ports(h.number) {
		if h.r.Uint64n(2) == 0 {
			h.n.Pause(h.number, port, 0)
		}
		h.n.Kick(h.number, port)
	}
}

func (h *actor) Dropped(p *Packet, _ Drop) { h.gone(p) }

func (h *actor) gone(p *Packet) {
	h.shared.Lock()
	defer h.shared.Unlock()
	if !h.shared.all[p.Handle] {
		panic(fmt.Sprint("a packet is gone twice: ", *p))
	}
	delete(h.shared.all, p.Handle)
}

// world returns a random network: any graph, any routes, any classes.
func world(seed uint64) Config {
	r := event.NewRand(seed, 2)
	below := func(n int) int { return int(r.Uint64n(uint64(n))) }
	c := Config{Hosts: 1 + below(6), MTU: minWire + below(4000), Seed: seed, Converge: Time(r.Uint64n(uint64(20 * event.Microsecond)))}
	switches := 1 + below(4)
	degree := make([]int, c.Hosts+switches)
	cable := func(a, b int) {
		c.Cables = append(c.Cables, Cable{A: a, B: b, Rate: int64(1+below(100)) * gbit, Delay: Time(r.Uint64n(uint64(3 * event.Microsecond))),
			Loss: uint32(below(10) / 9 * below(billion/20))})
		degree[a]++
		degree[b]++
	}
	for h := range c.Hosts {
		cable(h, c.Hosts+below(switches))
		if below(5) == 0 {
			cable(h, c.Hosts+below(switches))
		}
	}
	for s := 1; s < switches; s++ {
		for range 1 + below(3) {
			cable(c.Hosts+s, c.Hosts+below(s))
		}
	}
	for i := range switches {
		sw := Switch{CutThrough: below(2) == 0, Routing: Routing(below(4)), Gap: Time(below(2_000_000))}
		if below(2) == 0 {
			sw.Watchdog = WatchdogConfig{Time(r.Uint64n(uint64(50 * event.Microsecond))), Time(r.Uint64n(uint64(50 * event.Microsecond)))}
		}
		sw.Buffer = int64(below(300_000))
		for j := range sw.Classes {
			sw.Classes[j] = Class{Lossless: below(3) == 0, Reserve: int64(below(3000)), Headroom: int64(1 + below(20_000)), Alpha: int8(below(12) - 8),
				XONOffset: int64(below(9000)), EgressAlpha: int8(below(8) - 4), EgressMax: int64(below(2) * below(50_000)),
				Strict: below(4) == 0, Weight: uint16(below(10)), RED: RED{1000, 20_000, uint32(below(million))}}
			sw.Buffer += int64(degree[c.Hosts+i]) * (sw.Classes[j].Reserve + sw.Classes[j].Headroom + int64(c.MTU))
		}
		c.Switches = append(c.Switches, sw)
	}
	tables := func() []Table {
		var list []Table
		for i := range switches {
			t := Table{Sets: make([][]uint16, 5)}
			for s := range t.Sets {
				for p := range degree[c.Hosts+i] {
					if below(3) == 0 {
						t.Sets[s] = append(t.Sets[s], uint16(p))
					}
				}
			}
			for range c.Hosts {
				t.Set = append(t.Set, uint16(below(len(t.Sets))))
			}
			list = append(list, t)
		}
		return list
	}
	c.Tables = tables()
	if below(2) == 0 {
		c.Reroute = func([]bool) []Table { return tables() }
	}
	return c
}

// live runs a world. look says that taps look on, and that it runs in steps. It
// returns the digest, and one of what they have seen.
func live(t *testing.T, seed uint64, look bool, parts int) (*Network, uint64, uint64) {
	return liveIn(t, world(seed), seed, look, parts)
}

// liveIn is live in a world that may have been changed.
func liveIn(t *testing.T, c Config, seed uint64, look bool, parts int) (*Network, uint64, uint64) {
	k := cores.New(parts)
	defer k.Close()
	c.Parts, c.Parallel = parts, k.Do
	switch seed % 16 {
	case 3:
		c.Parallel = nil
	case 5:
		c.Parallel = func(parts int, turn func(int)) { // at no time together
			for i := range parts {
				turn(parts - 1 - i)
			}
		}
	}
	n, err := New(c)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	r := event.NewRand(seed, 3)
	underWay := &handles{all: map[uint32]bool{}}
	var seen event.Digest
	for i := range n.hosts {
		n.Attach(i, &actor{n: n, number: i, r: event.NewRand(seed, uint64(10+i)), left: int(r.Uint64n(300)), shared: underWay})
		n.Kick(i, 0)
	}
	for range r.Uint64n(6) {
		i := int(r.Uint64n(uint64(len(n.changes.up))))
		n.At(Time(r.Uint64n(uint64(100*event.Microsecond))), func() { n.SetCable(i, !n.Up(i)) })
	}
	n.At(event.Millisecond, func() {
		for i := range n.changes.up {
			n.SetCable(i, true)
		}
	})
	n.At(2*event.Millisecond, func() {
		for i := range n.hosts {
			for p := range n.Ports(i) {
				n.Pause(i, p, 0)
				n.Kick(i, p)
			}
		}
	})
	var told observed
	if look {
		told = watched(n)
		n.Tap(func(s Sight) {
			seen.Add(uint64(s.At))
			seen.Add(uint64(s.Node)<<16 | uint64(s.Port))
			seen.Add(s.Packet.identity() ^ uint64(s.Arrives))
		})
		for range 300 {
			n.Run(n.Now() + Time(r.Uint64n(uint64(event.Microsecond))))
			n.Totals()
			n.Digest()
			if err := n.Check(); err != nil {
				t.Fatalf("seed %d at %v: %v", seed, n.Now(), err)
			}
			for s := range n.switches {
				n.Port(len(n.hosts)+s, 0).Area()
			}
		}
	}
	n.Run(event.Never)
	if err := n.Check(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if got := uint64(len(underWay.all)); got != n.Totals().Inside() {
		t.Fatalf("seed %d: hosts know of %d packets under way, the network of %d", seed, got, n.Totals().Inside())
	}
	if look {
		seen.Add(told.check(t, n))
	}
	return n, n.Digest(), seen.Sum()
}

// In random networks with random routes, classes, failures and pauses the books
// balance at any time. What stays inside at the end stands still by a cycle of
// pauses, or because a host pauses; else all counters of buffers are 0. Each
// run gives the same digest again, looked at or not, in any number of parts.
func TestWorlds(t *testing.T) {
	t.Parallel()
	count := *worlds
	if count == 0 {
		count = 400
		if testing.Short() || race.Enabled {
			count = 50
		}
	}
	standing := 0
	divided := map[int]int{} // by how many parts there were
	for seed := range count {
		n, first, _ := live(t, seed, false, 1)
		if n.Totals().Inside() == 0 {
			empty(t, n)
		} else {
			standing++
			stands(t, seed, n)
		}
		m, second, seen := live(t, seed, true, 1)
		if second != first || m.Totals() != n.Totals() || m.Now() < n.Now() {
			t.Fatalf("seed %d: digest %x, and %x when it is looked at", seed, first, second)
		}
		parts := 2 + int(seed%7)
		m, other, order := live(t, seed, true, parts)
		if other != first || order != seen || m.Totals() != n.Totals() {
			t.Fatalf("seed %d: digest %x, in %d parts %x; seen %x and %x\n%+v\n%+v", seed, first, m.Parts(), other, seen, order, n.Totals(), m.Totals())
		}
		divided[m.Parts()]++
		if m, other, _ := live(t, seed, false, parts); other != first || m.Now() != n.Now() || m.Totals() != n.Totals() {
			t.Fatalf("seed %d: digest %x, in %d parts %x, not looked at; at %v and %v", seed, first, m.Parts(), other, n.Now(), m.Now())
		}
	}
	t.Logf("%d of %d worlds end in a deadlock; times so many parts: %v", standing, count, divided)
	for parts := 2; parts <= 7; parts++ {
		if divided[parts] == 0 {
			t.Errorf("no world was divided into %d", parts)
		}
	}
}

// stands checks that every queue with packets in it is paused.
func stands(t *testing.T, seed uint64, n *Network) {
	t.Helper()
	for i := range n.switches {
		sw := &n.switches[i]
		for p := range sw.out {
			if sw.out[p].ready(sw.link(p).stopped()) {
				t.Fatalf("seed %d: switch %d, port %d could send and does not", seed, i, p)
			}
		}
	}
}

// The digests of some worlds, and of a loaded Clos network, are what they were,
// on every processor, with any number of threads.
func TestDigestsAreTheSameEverywhere(t *testing.T) {
	digests := func() []byte {
		var b bytes.Buffer
		for seed := range uint64(20) {
			n, digest, _ := live(t, seed, false, 1)
			fmt.Fprintf(&b, "world %d: %d events, %016x\n", seed, n.Totals().Events, digest)
			if _, other, _ := live(t, seed, false, 2+int(seed%3)); other != digest {
				t.Errorf("world %d in parts: %016x", seed, other)
			}
		}
		for _, routing := range []Routing{ECMP, Flowlet, LeastQueue, Spray} {
			n := loaded(t, routing)
			fmt.Fprintf(&b, "clos, routing %d: %d events at %v, %016x\n", routing, n.Totals().Events, n.Now(), n.Digest())
		}
		return b.Bytes()
	}
	const file = "testdata/digests.txt"
	if *rewrite {
		if err := os.WriteFile(file, digests(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, threads := range []int{1, 2} {
		runtime.GOMAXPROCS(threads)
		if got := digests(); !bytes.Equal(got, want) {
			t.Errorf("with %d threads on %s (-rewrite accepts it):\n%s", threads, runtime.GOARCH, got)
		}
	}
}

// loaded runs a permutation over a lossless Clos network with marks.
func loaded(t *testing.T, routing Routing) *Network {
	sw := Switch{Buffer: 4 << 20, Routing: routing, Gap: event.Microsecond}
	sw.Classes[3] = Class{Lossless: true, Alpha: -3, XONOffset: 3000, RED: RED{20_000, 80_000, 200_000}}
	c := clos(4, 4, 3, sw, 100*gbit, 500*event.Nanosecond)
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Hosts {
		n.Attach(i, &permutation{n: n, number: i, to: (i + 5) % c.Hosts, left: 300})
		n.Kick(i, 0)
	}
	finish(t, n)
	return n
}
