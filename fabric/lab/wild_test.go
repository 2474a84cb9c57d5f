package lab

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
)

var wildSeeds = flag.Int("wild", 0, "how many random scenarios TestWild plays; 0: 60, or 15 with -short")

// dice draws settings.
type dice struct{ event.Rand }

func (d *dice) below(n int) int { return int(d.Uint64n(uint64(n))) }

func (d *dice) one(of ...string) string { return of[d.below(len(of))] }

// rarely returns 0 in three of four cases, and else a number up to n.
func (d *dice) rarely(n int) int {
	if d.below(4) > 0 {
		return 0
	}
	return 1 + d.below(n)
}

// wild returns a random scenario: any network, adapters and traffic, with
// failures in the midst of it.
func wild(seed uint64) Scenario {
	d := &dice{event.NewRand(seed, 77)}
	s := Scenario{Seed: seed, Until: Time(50+d.below(500)) * us}
	n := &s.Network
	*n = Network{
		Topology: d.one("pair", "star", "leaf-spine", "leaf-spine", "fat-tree", "ring"),
		Hosts:    2 + d.below(8), Leaves: 1 + d.below(4), Spines: 1 + d.below(4), HostsPerLeaf: 2 + d.below(3),
		K: 4, Switches: 2 + d.below(5), PerSwitch: 1 + d.below(3),
		Rate: []Rate{10 * Gbps, 25 * Gbps, 40 * Gbps, 100 * Gbps, 400 * Gbps}[d.below(5)], Delay: Time(d.rarely(5000)) * Time(event.Nanosecond),
		Profile: d.one("spectrum", "7060cx", "hpcc-sim", "dcqcn-paper"), Lossy: d.below(3) == 0, QueueMax: Bytes(d.rarely(200_000)),
		Routing: d.one("ecmp", "flowlet", "least-queue", "spray"), UpDown: d.below(2) == 0, CutThrough: d.below(3) == 0,
		Watchdog: Time(d.rarely(200)) * us, Converge: Time(1+d.below(300)) * us, Loss: float64(d.rarely(20)) / 1000,
	}
	if d.below(3) == 0 {
		n.UpRate = Rate(1+d.below(100)) * Gbps
	}
	s.Adapter = Adapter{
		MTU: []int{256, 1024, 4096}[d.below(3)], Control: d.one("window", "static", "dcqcn", "dcqcn-adapter", "dcqcn-host", "dcqcn,ai=1G,burst=16K"),
		Window: Bytes(d.rarely(2_000_000)), Recovery: d.one("selective", "go-back-n"), NoECN: d.below(4) == 0,
		Notify: Time(d.rarely(50)) * us, Timeout: 1 + d.below(14), Shared: d.below(3) == 0, ReadChunk: Bytes(d.rarely(100_000)), Turn: Bytes(d.rarely(65536)),
	}
	for range 1 + d.below(3) {
		s.Traffic = append(s.Traffic, Traffic{
			Kind: d.one("flow", "incast", "permutation", "all-to-all", "load", "bursts", "ring", "tree", "halving"),
			From: 0, To: 1, Senders: 1, Bytes: Bytes(1 + d.below(300_000)), Sizes: d.one("websearch", "hadoop", "alistorage"),
			Load: float64(1+d.below(900)) / 1000, Start: Time(d.rarely(40)) * us, Op: d.one("write", "send", "read"),
		})
	}
	for range d.rarely(6) {
		at := Time(d.below(int(s.Until/us))) * us
		s.Failures = append(s.Failures, Failure{Cable: d.below(20), At: at, Until: at + Time(1+d.below(400))*us})
	}
	if !s.Adapter.Shared && d.below(3) == 0 {
		s.Losses = []Packets{{Flow: d.below(4), Packets: "0 2-5 30"}}
		s.Marks = []Packets{{Flow: d.below(4), Packets: "1 7-9"}}
	}
	more := &dice{event.NewRand(seed, 79)}
	if more.below(4) == 0 {
		n.BER = float64(more.rarely(100)) / 1e7
	}
	if n.Loss > 0 {
		n.Burst = more.rarely(20)
	}
	if more.below(4) == 0 {
		n.Topology = "links" // with hosts that have one, two or three cables
		n.Links = []Link{{From: "h0-3", To: more.one("s0", "s0-1", "s0-2")}, {From: "h2-5", To: more.one("s1", "s1-2"), Count: 1 + more.below(2)}, {From: "s0-2", To: "s3"}}
		n.Hosts, n.Switches = 6, 4
	}
	if more.below(8) == 0 {
		n.Topology, n.Machines, n.GPUs, n.MachinesPerLeaf = "rails", 2+more.below(3), 1+more.below(3), more.rarely(2)
		if inside := (&dice{event.NewRand(seed, 83)}); n.GPUs > 1 && inside.below(2) == 0 {
			n.ScaleUpRate, n.ScaleUpDelay = Rate(1+inside.below(3000))*Gbps, Time(inside.rarely(3000))*Time(event.Nanosecond)
		}
	}
	switch n.Topology {
	case "leaf-spine":
		n.Oversubscription = more.rarely(4)
		if n.Oversubscription > 0 {
			n.UpRate = 0
		}
	case "fat-tree":
		n.Oversubscription, n.CoreOversubscription = more.rarely(2), more.rarely(2)
	}
	if tcp := (&dice{event.NewRand(seed, 81)}); tcp.below(3) == 0 {
		s.Losses, s.Marks = nil, nil // which may be about any flow
		s.Traffic = append(s.Traffic, Traffic{
			Kind: tcp.one("flow", "incast", "permutation", "all-to-all", "load", "bursts"), To: 1, Senders: 1,
			Bytes: Bytes(1 + tcp.below(300_000)), Load: float64(1+tcp.below(900)) / 1000, Start: Time(tcp.rarely(40)) * us,
			Tenant: Tenant{Transport: "tcp", Control: tcp.one("reno", "dctcp"), Class: tcp.one("0", "26", "10"), Window: Bytes(tcp.rarely(1)*10_000 + tcp.rarely(1)*100_000),
				TCP: TCP{MSS: tcp.rarely(1) * 536, MinRTO: Time(1+tcp.below(200)) * us, AckEvery: 1 + tcp.below(3), ECN: tcp.below(2) == 0}},
		})
	}
	if last := len(s.Traffic) - 1; s.Traffic[last].Transport == "tcp" && (&dice{event.NewRand(seed, 85)}).below(3) == 0 {
		s.Traffic[last].Control = "cubic"
	}
	for range more.rarely(4) {
		s.Failures = append(s.Failures, more.failure(&s))
	}
	return s
}

// failure returns a random one of a scenario that may have its nodes.
func (d *dice) failure(s *Scenario) Failure {
	at := Time(d.below(int(s.Until/us))) * us
	f := Failure{Kind: d.one(failureKinds...), At: at, Until: at + Time(1+d.below(400))*us}
	switch f.Kind {
	case "switch":
		f.Node = fmt.Sprint("s", d.below(3))
	case "pause-storm", "host":
		f.Node = fmt.Sprint("h", d.below(3))
		if s.Network.Lossy {
			f.Kind = "host"
		}
	case "rate":
		f.Cable, f.Rate = d.below(8), Rate(1+d.below(10))*Gbps
	case "delay":
		f.Cable, f.Delay = d.below(8), Time(1+d.below(20_000_000))
	case "loss":
		f.Cable, f.Loss = d.below(8), float64(1+d.below(9))/10
	default:
		f.Between = []string{fmt.Sprint("h", d.below(2)), "s0"}
	}
	if d.below(3) == 0 {
		f.Every, f.For = Time(20+d.below(100))*us, Time(1+d.below(20_000_000))
	}
	return f
}

// absent reports whether a failure is one of what the network has not, or the
// buffer of the profile not enough for its cables.
func absent(err error) bool {
	for _, text := range []string{"there is no cable", "switches, from 0 on", "hosts, from 0 on", "no cable joins them", "makes no cable faster", "is too small here"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// TestWild plays random scenarios, each twice: the second time looked at in
// other steps, and on up to eight cores. The books of the network and of the
// adapters balance, and both times the same happens.
func TestWild(t *testing.T) {
	t.Parallel()
	played, seeds := 0, *wildSeeds
	if seeds == 0 {
		seeds = 60
		if testing.Short() {
			seeds = 15
		}
	}
	for seed := range uint64(seeds) {
		s := wild(seed)
		r, err := Run(context.Background(), s)
		if err != nil {
			// A network may have fewer cables, and an all-reduce
			// does not outlive its queue pairs.
			if !absent(err) && !strings.Contains(err.Error(), "a message from rank") {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		played++
		s.Every, s.Cores = 7*us, 1+int(seed%8)
		again, err := Run(context.Background(), s)
		if err != nil {
			t.Errorf("seed %d, again: %v", seed, err)
		} else if r.Digest != again.Digest || r.TCP != nil && *r.TCP != *again.TCP || r.Stats != again.Stats || r.Totals != again.Totals {
			t.Errorf("seed %d: digest %x and %x, %+v and %+v", seed, r.Digest, again.Digest, r.Totals, again.Totals)
		}
		dropped := r.Totals.Drops
		n := &s.Network
		if !n.Lossy && n.Loss == 0 && n.BER == 0 && n.Watchdog == 0 && len(s.Failures)+len(s.Losses) == 0 && r.TCP == nil && dropped != [len(dropped)]uint64{} {
			t.Errorf("seed %d: a lossless network dropped %v", seed, dropped)
		}
	}
	if played < seeds/2 {
		t.Errorf("%d of %d scenarios can be played", played, seeds)
	}
}
