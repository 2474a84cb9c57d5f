package network

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// paced is a host that sends one packet at a fixed interval, unless paused.
type paced struct {
	n        *Network
	p        Packet
	interval Time
	next     Time
	until    Time
}

func (h *paced) Pull(now Time, _ int, paused uint8, p *Packet) bool {
	if now < h.next || h.next > h.until || paused>>(h.p.DSCP/8)&1 != 0 {
		return false
	}
	*p = h.p
	h.next += h.interval
	h.n.SetTimer(0, h.next)
	return true
}
func (h *paced) Receive(Time, int, *Packet) {}
func (h *paced) Timer(Time)                 { h.n.Kick(0, 0) }
func (h *paced) Dropped(*Packet, Drop)      {}

// loop is a ring of switches whose routes for host 1, which is not there, go
// round for ever. Host 0 sends to it by switch 0, at a part (of 1000) of the
// rate of the cables, with a hop limit.
func loop(t *testing.T, switches, hops int, part int64, dog WatchdogConfig) *Network {
	t.Helper()
	const rate, size = 40 * gbit, 1100
	sw := Switch{Buffer: 1 << 20, Watchdog: dog}
	sw.Classes[3] = Class{Lossless: true, Alpha: -3, XONOffset: 2 * size}
	c := Config{Hosts: 2, MTU: size, Cables: []Cable{{A: 0, B: 2, Rate: 100 * gbit, Delay: event.Microsecond}}}
	for s := range switches {
		c.Switches = append(c.Switches, sw)
		c.Cables = append(c.Cables, Cable{A: 2 + s, B: 2 + (s+1)%switches, Rate: rate, Delay: event.Microsecond})
		// Port 0 leads to the host, or to the switch before; port 1 to
		// the next switch.
		c.Tables = append(c.Tables, Table{Set: []uint16{0, 0}, Sets: [][]uint16{{1}}})
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	interval := Time(size*8*1000) * event.Second / Time(rate) / Time(part)
	n.Attach(0, &paced{n: n, interval: interval, until: 20 * event.Millisecond,
		p: Packet{Dst: 1, Size: size, DSCP: 24, Hops: uint8(hops)}})
	n.Kick(0, 0)
	return n
}

// A loop of n switches with a hop limit of t stands still for ever if more than
// n*B/t is injected, and not if less is (Hu et al.: Deadlocks in Datacenter
// Networks: Why Do They Form, and How to Avoid Them, HotNets 2016). The limit
// is met within 10 %. A packet crosses t-1 cables of the loop.
func TestDeadlockRule(t *testing.T) {
	t.Parallel()
	for _, switches := range []int{2, 3} {
		for _, hops := range []int{16, 32} {
			limit := int64(1000 * switches / hops)
			n := loop(t, switches, hops, limit*9/10, WatchdogConfig{})
			n.Run(event.Never)
			balance(t, n)
			if got := n.Totals(); got.Inside() != 0 || got.Dropped() != got.Drops[HopLimit] {
				t.Errorf("%d switches, hop limit %d: 10 %% below the limit the loop stands still: %+v", switches, hops, got)
			}
			n = loop(t, switches, hops, limit*11/10, WatchdogConfig{})
			n.Run(event.Never)
			balance(t, n)
			if got := n.Totals(); got.Inside() == 0 {
				t.Errorf("%d switches, hop limit %d: 10 %% above the limit the loop does not stand still: %+v", switches, hops, got)
			}
			for s := range switches {
				if p := n.Port(2+s, 1); p.Paused()>>3&1 == 0 || p.Queued(3) == 0 {
					t.Errorf("%d switches, hop limit %d: switch %d is not part of the deadlock", switches, hops, s)
				}
			}
		}
	}
}

// With a watchdog the standstill ends: all that was sent is dropped by name,
// and packets move again.
func TestWatchdogEndsDeadlock(t *testing.T) {
	t.Parallel()
	for _, switches := range []int{2, 3} {
		n := loop(t, switches, 16, int64(1000*switches/16*2), WatchdogConfig{Detect: event.Millisecond, Restore: event.Millisecond})
		finish(t, n)
		got := n.Totals()
		if got.Storms == 0 || got.Drops[Watchdog] == 0 || got.Drops[HopLimit] == 0 {
			t.Errorf("%d switches: %+v", switches, got)
		}
		for s := range switches {
			if p := n.Port(2+s, 1); p.Paused() != 0 {
				t.Errorf("switch %d of %d is still paused", s, switches)
			}
		}
	}
}
