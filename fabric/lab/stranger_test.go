package lab

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/internal/race"
)

// star4 is a scenario that can be played.
func star4() Scenario {
	return Scenario{Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{Kind: "incast", Senders: 3, Bytes: 1000}}}
}

// What would silently mean something else, or take all memory or time there is,
// is refused.
func TestNothingMeansSomethingElse(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(s *Scenario){
		"across is -4":               func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "permutation", Across: -4, Bytes: 1} },
		"adapter.min_probe is 500ps": func(s *Scenario) { s.Adapter.MinProbe = 500 },
		"adapter.notify is 1.5ns":    func(s *Scenario) { s.Adapter.Notify = 1500 },
		"adapter.min_probe is 2":     func(s *Scenario) { s.Adapter.MinProbe = 2_300_000_000_000_000_000 },
		"adapter.window is 8GiB":     func(s *Scenario) { s.Adapter.Window = 8 << 30 },
		"network.loss is 1e-12":      func(s *Scenario) { s.Network.Loss = 1e-12 },
		"network.loss is 1.4e-09":    func(s *Scenario) { s.Network.Loss = 1.4e-9 },
		"network.red.pmax is 1e-09":  func(s *Scenario) { s.Network.RED = &RED{Kmin: 1, Kmax: 2, Pmax: 1e-9} },
		"load is 4e-07":              func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "load", Bytes: 9, Load: 4e-7, Until: us} },
		"it starts at 3us":           func(s *Scenario) { s.Until, s.Traffic[0].Start = 3*us, 3*us },
		"it fails at 3us":            func(s *Scenario) { s.Until, s.Failures = 3*us, []Failure{{At: 3 * us}} },
		"until, limit or another":    func(s *Scenario) { s.Until = math.MaxInt64 },
		"traffic 1, incast: start":   func(s *Scenario) { s.Traffic[0].Start = math.MaxInt64/4 + 1 },
		"failure 1: at or until":     func(s *Scenario) { s.Failures = []Failure{{Until: math.MaxInt64/4 + 1}} },
		"converge":                   func(s *Scenario) { s.Network.Converge = math.MaxInt64 },
		"name has":                   func(s *Scenario) { s.Name = "a\x1b[2Jb" },
		"at most 1048576 flows": func(s *Scenario) {
			s.Network.Hosts, s.Traffic = 256, make([]Traffic, 20)
			for i := range s.Traffic {
				s.Traffic[i] = Traffic{Kind: "all-to-all", Bytes: 1}
			}
		},
		"messages in all": func(s *Scenario) {
			s.Network.Hosts, s.Traffic[0] = 20_000, Traffic{Kind: "ring", Bytes: 1 << 20}
		},
		"ways to 16384 hosts at": func(s *Scenario) {
			s.Network = Network{Topology: "ring", Switches: 1 << 14, PerSwitch: 1}
		},
		"too large": func(s *Scenario) {
			s.Network = Network{Topology: "leaf-spine", Leaves: 16_000, Spines: 60, HostsPerLeaf: 1}
		},
	} {
		s := star4()
		change(&s)
		if _, err := newRun(&s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; it should say %q", err, want)
		}
	}
	for text, want := range map[string]string{
		"[network]\nTopology = \"star\"":                      "line 2: there is no setting \"network.Topology\"",
		"[network]\nlossy = true\nalpha = -3":                 "line 3: network.alpha is for lossless classes",
		"[network]\ntopology = \"pair\"\nrouting = \"spray\"": "network, pair: it has no routing, which is a setting of switches",
		"until = \"0b11us\"":                                  "like \"20us\"",
		"until = \"1e999999us\"":                              "like \"20us\"",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; it should say %q", text, err, want)
		}
	}
}

// A setting that is written twice, in different letters, is refused each time:
// no order of a map decides which of them is taken.
func TestSettingsInOneSpelling(t *testing.T) {
	t.Parallel()
	for range 50 {
		if s, err := Parse([]byte("[network]\nrate = \"1Gb/s\"\nRate = \"2Gb/s\"\n")); err == nil {
			t.Fatalf("the rate is %v", s.Network.Rate)
		}
	}
}

// Mistakes that are found when a scenario is played have the line, too, where
// it was a text.
func TestErrorsHaveLines(t *testing.T) {
	t.Parallel()
	const text = `name = "mine"
until = "1ms"
[network]
topology = "star" # of
hosts = 4

loss = %v
[[traffic]]
kind = "incast"
senders = 3
[[traffic]]
kind = "flow"
to = %d
[[failure]]
cable = %d
`
	for _, c := range []struct {
		loss      float64
		to, cable int
		want      string
	}{
		{2, 1, 0, "scenario \"mine\": line 7: network.loss is 2"},
		{0, 1, -1, "scenario \"mine\": line 14: failure 1"},
		{0, 9, 0, "scenario \"mine\": line 11: traffic 2, flow"},
		{0, 1, 9, "scenario \"mine\": line 14: failure 1"},
	} {
		s, err := Parse(fmt.Appendf(nil, text, c.loss, c.to, c.cable))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), s); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v; it should begin with %s", err, c.want)
		}
	}
}

// A static window is as large as it says, however large that is.
func TestStaticWindows(t *testing.T) {
	t.Parallel()
	for _, a := range []Adapter{{Control: "static,bytes=64M"}, {Control: "static", Window: 64 << 20}, {Control: "static", Window: 32 << 20, MTU: 1024}} {
		r := play(t, Scenario{Network: Network{Topology: "pair", Delay: 1000 * us}, Adapter: a, Until: 8000 * us, Warm: 4000 * us,
			Traffic: []Traffic{{Kind: "flow", To: 1}}})
		if _, sum, _ := r.Rates(); sum < 90*Gbps {
			t.Errorf("%+v: %v over a way that holds 25 MB", a, sum)
		}
	}
}

// Rates of flows without an end are their own, though flows share connections.
func TestRatesOfSharedFlows(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		s := Scenario{Network: Network{Topology: "pair"}, Adapter: Adapter{Shared: true}, Until: 500 * us}
		for range 3 {
			s.Traffic = append(s.Traffic, Traffic{Kind: "flow", To: 1, Op: op})
		}
		s.Traffic = append(s.Traffic, Traffic{Kind: "flow", To: 1, Op: op, Bytes: 100_000})
		if rates, sum, _ := play(t, s).Rates(); sum > 100*Gbps || sum < 80*Gbps || len(rates) != 3 {
			t.Errorf("%s: %v, %v in all", op, rates, sum)
		}
	}
}

// Flows share a connection only if they have one source port.
func TestSharedPorts(t *testing.T) {
	t.Parallel()
	s := Scenario{Network: Network{Topology: "pair"}, Adapter: Adapter{Shared: true}, Until: 100 * us}
	for _, port := range []int{0, 50_000, 50_001, 50_000, 0} {
		s.Traffic = append(s.Traffic, Traffic{Kind: "flow", To: 1, Bytes: 10_000, SrcPort: port})
	}
	r, err := newRun(&s, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.play(t.Context(), newSampler(r))
	if len(r.shared) != 3 || r.err != nil {
		t.Errorf("%d connections for 3 source ports, %v", len(r.shared), r.err)
	}
}

// A cable is down while any failure of it lasts, in whatever order they are
// named.
func TestFailuresThatOverlap(t *testing.T) {
	t.Parallel()
	fail := func(at, until Time) Failure { return Failure{At: at * us, Until: until * us} }
	for _, list := range [][]Failure{
		{fail(10, 30), fail(20, 40)}, {fail(20, 40), fail(10, 30)}, {fail(10, 40), fail(15, 20)}, {fail(15, 20), fail(10, 40)},
		{fail(10, 20), fail(20, 40)}, {fail(20, 40), fail(10, 20)}, {fail(10, 40), fail(10, 40)},
		{{Cable: 1, At: 5 * us}, fail(10, 20), fail(12, 40), fail(15, 40)}, {fail(10, 40), fail(12, 40), fail(41, 0), fail(50, 60)},
	} {
		s := star4()
		s.Failures = list
		r, err := newRun(&s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for at := Time(1); at < 70; at++ {
			r.net.Run(event.Time(at*us - us/2))
			down := at > 10 && at <= 40 || len(list) > 3 && list[0].Cable == 0 && at > 41
			if r.net.Up(0) == down {
				t.Errorf("%+v: after %v the cable is up: %v", list, at*us, r.net.Up(0))
			}
		}
	}
}

// A run that has failed ends, though flows go on to arrive, a thousand million
// in each step.
func TestRunEndsWithItsError(t *testing.T) {
	t.Parallel()
	s := Scenario{Until: 10_000_000 * us, Network: Network{Topology: "star", Hosts: 64}, Traffic: []Traffic{{Kind: "load", Bytes: 1, Load: 1}}}
	if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "under way at once") {
		t.Errorf("%v", err)
	}
}

// interrupted is a context that is done when it has been asked several times.
type interrupted struct {
	context.Context
	left int
}

func (c *interrupted) Err() error {
	if c.left--; c.left >= 0 {
		return nil
	}
	return context.Canceled
}

// A run is interrupted also where samples are far apart.
func TestInterruptedBetweenSamples(t *testing.T) {
	t.Parallel()
	for _, cores := range []int{1, 3} {
		s := Scenario{Until: 50_000 * us, Every: 50_000 * us, Cores: cores, Network: Network{Topology: "star", Hosts: 9}, Traffic: []Traffic{{Kind: "permutation"}}}
		r, err := newRun(&s, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.play(&interrupted{t.Context(), 2}, newSampler(r))
		if r.err == nil || Time(r.net.Now()) > 2000*us {
			t.Errorf("%v, at %v", r.err, r.net.Now())
		}
	}
}

// interruptedAt is a context that ends at a time of a run.
type interruptedAt struct {
	context.Context
	r  *run
	at Time
}

func (c *interruptedAt) Err() error {
	if Time(c.r.net.Now()) <= c.at {
		return nil
	}
	return context.Canceled
}

// What begins late is looked at as often: nothing that was before it makes the
// looks rare.
func TestInterruptedWhenLateTrafficHasBegun(t *testing.T) {
	t.Parallel()
	s := Scenario{Until: 2_000_000 * us, Network: Network{Topology: "star", Hosts: 9}, Traffic: []Traffic{{Kind: "permutation", Start: 1_000_000 * us}}}
	r, err := newRun(&s, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.play(&interruptedAt{t.Context(), r, s.Traffic[0].Start}, newSampler(r))
	if now := Time(r.net.Now()); r.err == nil || now > 1_001_000*us {
		t.Errorf("%v, at %v", r.err, now)
	}
}

// More packets than there is memory for end a run.
func TestPacketsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	s := Scenario{Until: 5000 * us, Network: Network{Topology: "pair", Delay: 1000 * us}, Adapter: Adapter{Window: 32 << 20}, Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 32 << 20}}}
	r, err := newRun(&s, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.mostInside = 10
	r.play(t.Context(), newSampler(r))
	if r.err == nil || !strings.Contains(r.err.Error(), "packets are under way") {
		t.Errorf("%v", r.err)
	}
}

// What a run fails with at a host, and when, depends neither on how it is
// looked at nor on the number of cores: several ranks give up at the same
// picosecond.
func TestErrorsAreTheSame(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() || race.Enabled {
		seeds = 1
	}
	for seed := range seeds {
		var want string
		for cores := 1; cores <= 4; cores++ {
			for _, every := range []Time{0, 777 * us, 9000 * us} {
				s := Scenario{Seed: seed, Until: 30_000 * us, Every: every, Cores: cores, Network: Network{Topology: "star", Hosts: 8}, Adapter: Adapter{Timeout: 4},
					Traffic: []Traffic{{Kind: "halving", Bytes: 1 << 20}}}
				for i := range 8 {
					s.Failures = append(s.Failures, Failure{Cable: i, At: 20 * us})
				}
				_, err := Run(t.Context(), s)
				if err == nil {
					t.Fatal("nothing has failed")
				}
				if want == "" {
					want = err.Error()
				}
				if err.Error() != want {
					t.Errorf("seed %d, cores %d, every %v: %v; want %s", seed, cores, every, err, want)
				}
			}
		}
	}
}

// A flow alone takes what the formula says also through switches that cut
// through, with cables of other rates after them.
func TestAloneThroughCutThrough(t *testing.T) {
	t.Parallel()
	for _, up := range []Rate{25 * Gbps, 100 * Gbps, 400 * Gbps} {
		for _, op := range operations {
			for _, bytes := range []Bytes{1, 4096, 5000, 1 << 20} {
				r := play(t, Scenario{Network: Network{Topology: "leaf-spine", Leaves: 2, Spines: 1, HostsPerLeaf: 2, UpRate: up, CutThrough: true},
					Adapter: Adapter{Control: "static", Window: 1 << 20},
					Traffic: []Traffic{{Kind: "flow", From: 0, To: 3, Bytes: bytes, Op: op}}})
				if s := r.Flows[0].Slowdown(); s < .995 || s > 1.005 {
					t.Errorf("%s of %v over %v: %v, and alone %v", op, bytes, up, r.Flows[0].End, r.Flows[0].Ideal)
				}
			}
		}
	}
}

// The queues of a result are those of all ports, however many there are.
func TestQueuesOfManyPorts(t *testing.T) {
	t.Parallel()
	const hosts = mostWatched + 100
	r := play(t, Scenario{Network: Network{Topology: "star", Hosts: hosts}, Until: 200 * us, Every: 100 * us,
		Traffic: []Traffic{{Kind: "flow", To: hosts - 1, Bytes: 100_000}, {Kind: "flow", From: 1, To: hosts - 1, Bytes: 100_000}}})
	if len(r.Queues) == 0 || r.Queues[0].Port != hosts-1 {
		t.Errorf("queues %v", r.Queues)
	}
	r.Plots()
}

// What is to be measured from a time on that does not come is no result.
func TestWarmBehindTheEnd(t *testing.T) {
	t.Parallel()
	s := star4()
	s.Warm = 10_000_000 * us / 2
	if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "nothing was measured") {
		t.Errorf("%v", err)
	}
}
