package network

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/cores"
	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// flood is a host that always has something to send to some others, in classes
// that are not paused, until it has sent so much.
type flood struct {
	n      *Network
	number int
	r      event.Rand
	left   int
	to     []uint16
	pauses bool // it pauses its switch now and then
}

func (h *flood) Pull(_ Time, _ int, paused uint8, p *Packet) bool {
	class := 3 + uint8(h.r.Uint64n(2))
	if paused>>class&1 != 0 {
		class ^= 7 // the other one
	}
	if h.left == 0 || paused>>class&1 != 0 {
		return false
	}
	h.left--
	p.Dst, p.Size, p.DSCP = h.to[h.r.Uint64n(uint64(len(h.to)))], DefaultMTU-uint16(h.r.Uint64n(3000)), class*8
	p.SrcPort, p.ECN = uint16(h.r.Uint64n(8)), ECT0
	return true
}

func (h *flood) Receive(now Time, port int, _ *Packet) {
	if h.pauses && h.r.Uint64n(100) == 0 {
		h.n.Pause(h.number, port, uint8(h.r.Uint64n(4))<<3)
		h.n.SetTimer(h.number, now+Time(h.r.Uint64n(uint64(20*event.Microsecond))))
	}
}

func (h *flood) Timer(Time) {
	for port := range h.n.Ports(h.number) {
		h.n.Pause(h.number, port, 0)
	}
}

func (h *flood) Dropped(*Packet, Drop) {}

// flapped is what a run of cables that flap has come to.
type flapped struct {
	came      string
	parts     int
	flaps     int // cables that went down
	paused    int // of these, while an end was paused by the other one
	headrooms int // of these, while a switch held packets of it in its headroom
	down      uint64
}

// flaps returns what a small Clos network comes to in which all hosts write to
// two. Buffers fill up and pauses go out, and cables go down and come back in
// the midst of it, for some nanoseconds or longer. look says that a tap looks
// on, and that it runs in steps, between which cables come back, too.
func flaps(t *testing.T, seed uint64, parts int, look bool) (f flapped) {
	r := event.NewRand(seed, 31)
	below := func(n int) int { return int(r.Uint64n(uint64(n))) }
	sw := Switch{Buffer: int64(700_000 + below(500_000)), CutThrough: below(2) == 0, Routing: Routing(below(4)), Gap: event.Microsecond}
	for _, class := range []int{3, 4} {
		sw.Classes[class] = Class{Lossless: class == 3 || below(2) == 0, Alpha: int8(below(6) - 3), XONOffset: int64(below(9000)), Headroom: int64(20_000 + below(20_000)),
			RED: RED{20_000, 90_000, 200_000}}
	}
	if below(3) == 0 {
		sw.Watchdog = WatchdogConfig{Time(20+below(80)) * event.Microsecond, Time(below(30)) * event.Microsecond}
	}
	c := clos(3+below(2), 1+below(3), 2, sw, 100*gbit, Time(1+below(1500))*event.Nanosecond)
	for i := range c.Cables {
		c.Cables[i].Delay += Time(below(1000)) * event.Picosecond
	}
	noisy(&c, seed)
	k := cores.New(parts)
	defer k.Close()
	c.Seed, c.Parts, c.Parallel = seed, parts, k.Do
	if tables := c.Tables; below(2) == 0 {
		c.Reroute, c.Converge = func([]bool) []Table { return tables }, Time(below(20))*event.Microsecond
	}
	n, err := New(c)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for i := range c.Hosts {
		n.Attach(i, &flood{n: n, number: i, r: event.NewRand(seed, uint64(100+i)), left: 400, to: []uint16{0, uint16(c.Hosts - 1)}, pauses: i == 0})
		n.Kick(i, 0)
	}
	var seen event.Digest
	if look {
		n.Tap(func(s Sight) { seen.Add(uint64(s.At) ^ uint64(s.Node)<<44 ^ uint64(s.Port)<<52 ^ s.Packet.identity()) })
	}
	for range 40 {
		i := below(len(c.Cables))
		at := Time(below(120_000_000))
		back := at + 1 + Time(below([]int{100, 100_000, 30_000_000}[below(3)]))
		again := below(3) // how often it comes back in the same moment, and goes
		n.At(at, func() {
			if n.Up(i) {
				f.note(n, i)
			}
			n.SetCable(i, false)
			for range again {
				n.SetCable(i, true)
				n.SetCable(i, false)
			}
		})
		n.At(back, func() { n.SetCable(i, true) })
	}
	wear(t, n, &c, seed)
	for step := Time(0); look && step < 200*event.Microsecond; step += 1 + Time(r.Uint64n(uint64(3*event.Microsecond))) {
		n.Run(step)
		if i := below(30); i < len(c.Cables) && !n.Up(i) { // not by a script
			n.SetCable(i, true)
		}
		if err := n.Check(); err != nil {
			t.Fatalf("seed %d in %d parts, at %v: %v", seed, n.Parts(), n.Now(), err)
		}
	}
	n.Run(event.Second)
	if err := n.Check(); err != nil {
		t.Fatalf("seed %d in %d parts: %v", seed, n.Parts(), err)
	}
	if n.Totals().Inside() != 0 {
		t.Fatalf("seed %d in %d parts: %d packets are inside at the end", seed, n.Parts(), n.Totals().Inside())
	}
	empty(t, n)
	for node := range c.Hosts + len(c.Switches) {
		for p := range n.Ports(node) {
			l := n.Port(node, p)
			f.came += fmt.Sprint(l.Link(), l.Paused(), l.Queues().MaxBytes, l.Area(), " ")
		}
	}
	f.came = fmt.Sprintf("digest %x, %+v\n%s", n.Digest(), n.Totals(), f.came)
	f.parts, f.down = n.Parts(), n.Totals().Drops[CableDown]
	if look {
		f.came += fmt.Sprintf(", seen %x", seen.Sum())
	}
	return f
}

// noisy has some cables lose packets in bursts, and have bit errors.
func noisy(c *Config, seed uint64) {
	r := event.NewRand(seed, 33)
	for i := range c.Cables {
		k := &c.Cables[i]
		switch r.Uint64n(6) {
		case 0:
			k.BER = r.Uint64n(quintillion / 1_000_000)
		case 1:
			k.Loss, k.Burst = uint32(r.Uint64n(billion/10)), uint32(r.Uint64n(20))
		}
	}
}

// wear has cables be slower, longer or worse for some time, or lose all that
// one end sends, in the midst of the flaps.
func wear(t *testing.T, n *Network, c *Config, seed uint64) {
	r := event.NewRand(seed, 32)
	below := func(n int) int { return int(r.Uint64n(uint64(n))) }
	set := func(i int, cond Condition) func() {
		return func() {
			if err := n.SetCondition(i, cond); err != nil {
				t.Errorf("%+v: %v", cond, err)
			}
		}
	}
	for range 20 {
		i := below(len(c.Cables))
		at := Time(below(120_000_000))
		var cond Condition
		switch below(5) {
		case 0:
			cond.Rate = int64(1+below(100)) * gbit
		case 1:
			cond.Delay = Time(below(1_000_000))
		case 2:
			cond.Loss = uint32(below(billion / 2))
		case 3:
			cond.Void[below(2)] = true
		case 4:
			cond = Condition{gbit, Time(below(1_000_000)), billion / 10, [2]bool{below(2) == 0, below(2) == 0}}
		}
		n.At(at, set(i, cond))
		n.At(at+Time(below(60_000_000)), set(i, Condition{}))
	}
	for i := range c.Cables {
		n.At(190*event.Microsecond, set(i, Condition{})) // those of one cable overlap
	}
}

// note notes what there is at a cable that goes down.
func (f *flapped) note(n *Network, cable int) {
	f.flaps++
	paused, full := false, false
	for l := 2 * cable; l <= 2*cable+1; l++ {
		k := &n.links[l]
		paused = paused || k.paused != 0
		for class := range NumClasses {
			_, headroom, _ := (Port{n, uint32(l)}).Stored(class)
			full = full || headroom > 0
		}
	}
	if paused {
		f.paused++
	}
	if full {
		f.headrooms++
	}
}

// Cables flap while buffers are full and pauses are out. All of what comes of
// it is the same in one part and in up to four: digests, counters, how long
// each port was paused, the area below each queue, and what a tap sees in which
// order. The books balance all the time, and nothing stands still at the end.
func TestFlapsInParts(t *testing.T) {
	t.Parallel()
	seeds := uint64(150)
	if testing.Short() || race.Enabled {
		seeds = 12
	}
	var sum flapped
	divided := map[int]int{}
	for seed := range seeds {
		one := flaps(t, seed, 1, false)
		looked := flaps(t, seed, 1, true)
		for parts := 2; parts <= 8; parts += 1 + int(seed%3) {
			f := flaps(t, seed, parts, false)
			divided[f.parts]++
			if f.came != one.came || f.flaps != one.flaps || f.paused != one.paused || f.headrooms != one.headrooms {
				t.Fatalf("seed %d: %s\nin %d parts\n%s", seed, one.came, f.parts, f.came)
			}
		}
		if f := flaps(t, seed, 2+int(seed%3), true); f.came != looked.came {
			t.Fatalf("seed %d, looked at: %s\nin %d parts\n%s", seed, looked.came, f.parts, f.came)
		}
		sum.flaps, sum.paused, sum.headrooms, sum.down = sum.flaps+one.flaps, sum.paused+one.paused, sum.headrooms+one.headrooms, sum.down+one.down
	}
	t.Logf("%d networks: %d times a cable went down, %d of them with a pause out, %d with packets in a headroom; %d packets were lost by it; times so many parts: %v",
		seeds, sum.flaps, sum.paused, sum.headrooms, sum.down, divided)
	if divided[2] == 0 || divided[3] == 0 || divided[4] == 0 || sum.paused < int(2*seeds) || sum.headrooms < int(seeds)/2 {
		t.Error("they do not meet everything")
	}
}
