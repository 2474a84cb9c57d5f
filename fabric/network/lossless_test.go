package network

import (
	"fmt"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// burst lets two to four hosts of a star fill the buffer of their switch: their
// receiver pauses it for a while. The way back is full, too, so pause frames
// wait for a packet. The headroom is what func Headroom says, and less bytes
// fewer. It returns the packets that did not arrive.
func burst(t testing.TB, seed uint64, less int64) (lost uint64) {
	r := event.NewRand(seed, 1)
	pick := func(list ...int64) int64 { return list[r.Uint64n(uint64(len(list)))] }
	senders := int(pick(2, 3, 4))
	rate := pick(10, 25, 40, 100, 400) * gbit
	delay := Time(r.Uint64n(uint64(Time(100_000*8*gbit/rate) * event.Nanosecond)))
	c := Config{MTU: int(pick(1000, 1600, DefaultMTU, 9000)), Seed: seed}
	lossless := Class{
		Lossless: true, Alpha: int8(r.Uint64n(6)) - 4, XONOffset: int64(r.Uint64n(3 * uint64(c.MTU))),
		Headroom: Headroom(rate, delay, c.MTU) - less*int64(c.MTU), Reserve: pick(0, 0, 84, 4096),
	}
	sw := Switch{CutThrough: r.Uint64n(4) == 0}
	sw.Classes[3] = lossless
	ports := int64(senders + 1)
	free := int64(r.Uint64n(100_000))
	sw.Buffer = ports*(lossless.Headroom+lossless.Reserve+int64(c.MTU)) + free
	plain := star(senders+1, sw, rate, delay)
	c.Hosts, c.Switches, c.Cables, c.Tables = plain.Hosts, plain.Switches, plain.Cables, plain.Tables
	n, hosts := build(t, c)

	most := uint64(c.MTU - minWire + 1)
	small := pick(0, 0, 1, int64(most)) // how many bytes packets may differ by
	packets := 10 + int(3*(lossless.Headroom+lossless.Reserve+free)/int64(c.MTU)/2)
	for i := range senders {
		for range packets {
			size := c.MTU - int(r.Uint64n(min(uint64(small)+1, most)))
			hosts[i].packets = append(hosts[i].packets, Packet{Dst: uint16(senders), Size: uint16(size), DSCP: 24})
		}
		for range 2 * packets / senders {
			hosts[senders].packets = append(hosts[senders].packets, Packet{Dst: uint16(i), Size: uint16(c.MTU)})
		}
		n.At(Time(r.Uint64n(uint64(event.Microsecond))), func() { n.Kick(i, 0) })
	}
	n.Pause(senders, 0, 1<<3)
	n.Kick(senders, 0)
	n.At(Time(r.Uint64n(uint64(100*event.Microsecond))), func() { n.Pause(senders, 0, 0) })
	finish(t, n)
	totals := n.Totals()
	if bad := totals.Dropped() - totals.Drops[HeadroomFull] - totals.Drops[IngressFull] - totals.Drops[EgressFull]; bad != 0 {
		t.Fatalf("seed %d: %v", seed, totals)
	}
	for i := range senders {
		lost += uint64(hosts[i].dropped[HeadroomFull])
	}
	return lost
}

// Nothing of a lossless class is lost in 10,000 bursts whose headroom is 2 *
// rate * delay + 2 MTU + a pause frame. With one MTU less, many lose packets.
func TestHeadroomIsEnoughAndNotTooMuch(t *testing.T) {
	t.Parallel()
	const chunks = 4
	bursts := uint64(10_000)
	if testing.Short() || race.Enabled {
		bursts = 400
	}
	for chunk := range uint64(chunks) {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			t.Parallel()
			losing, tried := 0, 0
			for seed := chunk; seed < bursts; seed += chunks {
				if lost := burst(t, seed, 0); lost != 0 {
					t.Fatalf("seed %d: %d packets lost", seed, lost)
				}
				if seed%20 == chunk {
					tried++
					if burst(t, seed, 1) != 0 {
						losing++
					}
				}
			}
			if losing*10 < tried {
				t.Errorf("with one MTU less, only %d of %d bursts lose packets", losing, tried)
			}
			t.Logf("with one MTU less, %d of %d bursts lose packets", losing, tried)
		})
	}
}

// clients sends a number of packets of one class to each of a list of hosts in
// turn.
func clients(n *Network, hosts []*source, from int, count int, p Packet) {
	hosts[from].packets = append(hosts[from].packets, repeat(p, count)...)
	n.Kick(from, 0)
}

// A lossless Clos network loses nothing, whatever its hosts send to each other,
// and does not stand still: pauses go from switch to switch back to the
// senders.
func TestLosslessClos(t *testing.T) {
	t.Parallel()
	seeds := uint64(200)
	if testing.Short() || race.Enabled {
		seeds = 20
	}
	var xoffs uint64
	for seed := range seeds {
		r := event.NewRand(seed, 4)
		leaves, perLeaf, spines := 2+int(r.Uint64n(3)), 1+int(r.Uint64n(6)), 1+int(r.Uint64n(3))
		sw := Switch{Routing: Routing(r.Uint64n(4)), Gap: event.Microsecond, CutThrough: r.Uint64n(2) == 0}
		mtu := 500 + int(r.Uint64n(4000))
		delay := Time(r.Uint64n(uint64(2 * event.Microsecond)))
		ports := int64(max(perLeaf+spines, leaves))
		for _, class := range []int{3, 5} {
			sw.Classes[class] = Class{Lossless: true, Alpha: int8(r.Uint64n(6)) - 4, XONOffset: int64(r.Uint64n(9000)), Reserve: int64(r.Uint64n(5000)),
				Strict: r.Uint64n(2) == 0}
			sw.Buffer += ports * (Headroom(100*gbit, delay, mtu) + int64(mtu) + sw.Classes[class].Reserve)
		}
		sw.Buffer += int64(r.Uint64n(200_000))
		c := clos(leaves, perLeaf, spines, sw, 100*gbit, delay)
		c.MTU, c.Seed = mtu, seed
		for i := range c.Cables[c.Hosts:] {
			c.Cables[c.Hosts+i].Rate = []int64{25 * gbit, 100 * gbit, 50 * gbit}[seed%3] // the headroom is for 100
		}
		n, hosts := build(t, c)
		for range 3 * c.Hosts {
			from, to := int(r.Uint64n(uint64(c.Hosts))), uint16(r.Uint64n(uint64(c.Hosts)))
			if r.Uint64n(3) > 0 {
				to = 0 // incast
			}
			clients(n, hosts, from, int(r.Uint64n(100)), Packet{Dst: to, Size: uint16(84 + r.Uint64n(uint64(mtu-83))),
				DSCP: uint8(24 + 16*r.Uint64n(2)), SrcPort: uint16(r.Uint64())})
		}
		finish(t, n)
		if got := n.Totals(); got.Dropped() != 0 {
			t.Fatalf("seed %d: %+v", seed, got)
		}
		xoffs += n.Totals().XOFFs
	}
	if xoffs < 10*seeds {
		t.Errorf("%d pauses in %d networks: the test shows nothing", xoffs, seeds)
	}
}

// Pause is fair to ports, not to flows (Zhu et al.: Congestion Control for
// Large-Scale RDMA Deployments, SIGCOMM 2015, Figure 3): a sender beside the
// receiver gets half of its cable, three that share an uplink get a sixth each.
func TestPauseIsFairToPorts(t *testing.T) {
	t.Parallel()
	const rate = 40 * gbit
	var sw Switch
	sw.Buffer = 4 << 20
	sw.Classes[3] = Class{Lossless: true, Alpha: -3, XONOffset: 3000}
	c := clos(4, 5, 1, sw, rate, event.Microsecond)
	n, hosts := build(t, c)
	from := []int{1, 5, 10, 15}
	for _, h := range from {
		clients(n, hosts, h, 200_000, Packet{Dst: 0, Size: 1122, DSCP: 24})
	}
	n.Run(10 * event.Millisecond)
	balance(t, n)
	got := map[uint16]int64{}
	for i, at := range hosts[0].at {
		if at > 2*event.Millisecond {
			got[hosts[0].received[i].Src] += 1122
		}
	}
	const all = rate / 8 * 8 / 1000
	for _, h := range from {
		want := int64(all / 6)
		if h == 1 {
			want = all / 2
		}
		if !within(got[uint16(h)], want, 2) {
			t.Errorf("host %d gets %d bytes, want %d of %d", h, got[uint16(h)], want, int64(all))
		}
	}
	if n.Totals().Dropped() != 0 {
		t.Errorf("%+v", n.Totals())
	}
}

// A lossless class that has all of the shared buffer loses nothing. A lossy one
// has no room then, but for its reserve, and the totals say whose packets were
// dropped.
func TestLosslessClassLeavesNoRoomForOthers(t *testing.T) {
	t.Parallel()
	for _, reserve := range []int64{0, 10_000} {
		sw := Switch{Buffer: 1 << 20}
		sw.Classes[3] = Class{Lossless: true, Alpha: 16}
		sw.Classes[6] = Class{Alpha: 16, EgressAlpha: 16, Strict: true, Reserve: reserve}
		n, hosts := build(t, star(4, sw, 100*gbit, event.Microsecond))
		for i := range 2 {
			clients(n, hosts, i, 1000, Packet{Dst: 3, Size: DefaultMTU, DSCP: 24})
		}
		n.Pause(3, 0, 1<<3) // long enough to fill the buffer
		n.At(80*event.Microsecond, func() { clients(n, hosts, 2, 100, Packet{Dst: 3, Size: 98, DSCP: 48}) })
		n.At(150*event.Microsecond, func() { n.Pause(3, 0, 0) })
		finish(t, n)
		got := n.Totals()
		lost := got.ClassDrops[6]
		if got.ClassDrops[3] != 0 || lost != got.Drops[EgressFull]+got.Drops[IngressFull] || lost != got.Dropped() || (lost == 0) != (reserve > 0) {
			t.Errorf("reserve %d: dropped are %v, by class %v", reserve, got.Drops, got.ClassDrops)
		}
	}
}
