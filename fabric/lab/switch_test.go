package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/gosoftroce/rocev2/fabric/network"
)

// What switches cannot do together, or not in this network, is refused by name.
func TestSwitchMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"lossy = true\n[network.switch]\ncredit = true":                            "line 6: network.switch.credit is for lossless classes",
		"watchdog = \"1ms\"\n[network.switch]\ncredit = true":                      "line 4: network.watchdog ends pauses",
		"alpha = -1\n[network.switch]\ncredit = true":                              "line 4: network.alpha is a threshold of pauses",
		"[network.switch]\ncredit_buffer = \"64KiB\"":                              "line 5: network.switch.credit_buffer is for credit = true",
		"[network.switch]\ncredit = true\ncredit_buffer = \"8KiB\"":                "line 6: network.switch.credit_buffer is 8KiB: it is at least two packets",
		"[network.switch]\ncredit = true\ncredit_buffer = \"2GiB\"":                "line 6: network.switch.credit_buffer is 2GiB",
		"[network.switch]\ntrim = true":                                            "line 5: network.switch.trim is for lossy = true",
		"buffer = \"1MB\"\n[network.switch]\ncredit = true":                        "line 4: network.buffer is 976.562KiB: network: switch 0: buffer of 1000000 bytes: 9 ports need",
		"profile = \"hpcc-sim\"\ndelay = \"1ms\"":                                  `line 1: network.buffer is missing: that of profile "hpcc-sim" is too small here: network: switch 0: buffer of`,
		"profile = \"hpcc-sim\"\ndelay = \"1ms\"\n[network.switch]\ncredit = true": `line 1: network.buffer is missing: that of profile "hpcc-sim" is too small here: network: switch 0: buffer of`,
		"[network.switch]\ntrimm = true":                                           "(do you mean trim?)",
		"routing = \"dril\"":                                                       "(do you mean drill?)",
		"[network.switch]\ncredit = true\ncredit_buffer = \"64KiB\"\nint = true":   "",
	} {
		s, err := Parse([]byte("[network]\ntopology = \"star\"\nhosts = 9\n" + text + "\n[[traffic]]\nkind = \"incast\"\nsenders = 8\nbytes = \"1MB\"\n"))
		if err == nil {
			err = Check(s)
		}
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; it should say %q", text, err, want)
		}
	}
	if _, err := Parse([]byte("[network]\ntopology = \"pair\"\n[network.switch]\nint = true")); err == nil || !strings.Contains(err.Error(), "it has no switch, which is a setting of switches") {
		t.Errorf("a pair with a switch: %v", err)
	}
}

// wildSwitches has the switches of a random scenario do random things.
func wildSwitches(seed uint64) Scenario {
	s := wild(seed)
	d := &dice{s.random(99)}
	n := &s.Network
	if n.Topology == "pair" {
		n.Topology = "star"
	}
	n.Routing = d.one("drill", "weighted", "ecmp", "spray")
	n.Switch.INT = d.below(2) == 0
	if n.Lossy {
		n.Switch.Trim = d.below(4) > 0
		n.QueueMax = Bytes(20_000 + d.below(100_000))
	} else if n.Watchdog = 0; d.below(4) > 0 {
		n.Switch.Credit = true
		n.Switch.CreditBuffer = Bytes(d.rarely(200_000) + 10_000)
	}
	return s
}

// Random scenarios with programs are played twice, in one part and in several:
// the books balance, and both times the same happens.
func TestWildSwitches(t *testing.T) {
	t.Parallel()
	played, seeds := 0, max(*wildSeeds, 60)
	for seed := range uint64(seeds) {
		s := wildSwitches(seed)
		first, err := Run(context.Background(), s)
		if err != nil { // as in TestWild
			if !absent(err) && !strings.Contains(err.Error(), "a message from rank") {
				t.Errorf("seed %d: %v", seed, err)
			}
			continue
		}
		s.Cores = 2 + int(seed%7)
		second, err := Run(context.Background(), s)
		if err != nil {
			t.Errorf("seed %d in parts: %v", seed, err)
		} else if first.Digest != second.Digest || first.Totals != second.Totals {
			t.Errorf("seed %d: digest %x, totals %+v; in %d parts %x, %+v", seed, first.Digest, first.Totals, s.Cores, second.Digest, second.Totals)
		}
		n := &s.Network
		clean := n.Loss == 0 && n.BER == 0 && len(s.Failures)+len(s.Losses) == 0
		if n.Switch.Credit && clean && first.Totals.XOFFs+first.Totals.ClassDrops[3]+first.Totals.ClassDrops[4] != 0 {
			t.Errorf("seed %d: with credits %+v", seed, first.Totals)
		}
		played++
	}
	if played < seeds/2 {
		t.Errorf("only %d of %d were played", played, seeds)
	}
}

// A program of one's own, at switches and at hosts, sees all packets.
func TestOwnProgram(t *testing.T) {
	t.Parallel()
	var left, arrived uint64
	s := star4()
	s.Network.Switch.Program = func(*network.View) network.Hooks {
		return network.Hooks{Dequeue: func(*network.Packet, network.Place) network.Verdict {
			left++
			return network.Default
		}}
	}
	s.Network.Switch.HostProgram = func(*network.View) network.Hooks {
		return network.Hooks{Enqueue: func(*network.Packet, network.Place, network.Drop) network.Verdict {
			arrived++
			return network.Default
		}}
	}
	r := play(t, s)
	if left == 0 || left != r.Totals.Hops || arrived != r.Totals.Delivered {
		t.Errorf("%d packets have left the switch and %d have arrived: %+v", left, arrived, r.Totals)
	}
}

// What packets note takes bounded memory: there may be fewer of them.
func TestTrailIsBounded(t *testing.T) {
	t.Parallel()
	for hops := range network.MaxTrail + 1 {
		if n := mostWithTrail(hops); n > mostInside || n*uint64(hops)*uint64(unsafe.Sizeof(network.Hop{})) > 1<<30 || n < 1<<18 {
			t.Errorf("%d hops: %d packets", hops, n)
		}
	}
}

// In any network of one's own, however it is said, packets have room for the
// hops of a long way, so that HPCC sees all of them.
func TestRoomForHops(t *testing.T) {
	t.Parallel()
	const switches = 12 // in a row, with a host at each end
	links, text := []Link{{From: "h0", To: "s0"}}, fmt.Sprintf("%d %d %d\n", switches+2, switches, switches+1)
	for i := range switches {
		text += fmt.Sprintf("%d ", i+2)
		if i > 0 {
			links = append(links, Link{From: fmt.Sprintf("s%d", i-1), To: fmt.Sprintf("s%d", i)})
		}
	}
	text += "\n0 2 100Gbps 1us 0\n"
	for i := range switches - 1 {
		text += fmt.Sprintf("%d %d 100Gbps 1us 0\n", i+2, i+3)
	}
	text += fmt.Sprintf("%d 1 100Gbps 1us 0\n", switches+1)
	own := Network{Topology: "links", Hosts: 2, Switches: switches, Links: append(links, Link{From: fmt.Sprintf("s%d", switches-1), To: "h1"})}
	g, err := own.graph()
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]Network{"links": own, "file": {Topology: "file", Text: text}, "program": {Graph: g}} {
		s := Scenario{Network: n, Adapter: Adapter{Control: "hpcc"}, Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 100_000}}}
		if r := play(t, s); r.Totals.Unnoted > 0 || r.Totals.Hops < switches*25 {
			t.Errorf("%s: %d hops without room, of %d", name, r.Totals.Unnoted, r.Totals.Hops)
		}
	}
}
