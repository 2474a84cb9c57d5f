package lab

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Every scenario that the package has can be played.
func TestScenariosOfThePackage(t *testing.T) {
	t.Parallel()
	if len(Names()) < 5 {
		t.Errorf("there are %v", Names())
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Text(name)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := newRun(&s, nil); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := Text("no-such"); err == nil || !strings.Contains(err.Error(), "incast") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	const text = `
until = "1.5ms"
[network]
rate = "25Gb/s"
buffer = "12MB"
[adapter]
window = "64KiB"
[[traffic]]
bytes = "100B"
`
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if s.Until != 1500*us || s.Network.Rate != 25*Gbps || s.Network.Buffer != 12e6 || s.Adapter.Window != 64<<10 || s.Traffic[0].Bytes != 100 {
		t.Errorf("%+v", s)
	}
	for v, want := range map[string]string{
		s.Until.String(): "1.5ms", (2 * us).String(): "2us", Time(7).String(): "7ps", s.Network.Rate.String(): "25Gb/s",
		s.Adapter.Window.String(): "64KiB", Bytes(999).String(): "999B", Rate(1500).String(): "1.5kb/s", Time(0).String(): "0ps",
	} {
		if v != want {
			t.Errorf("written %s, want %s", v, want)
		}
	}
}

// What is wrong in a file is said, with where and what there could be.
func TestWrongFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"until = 5":                             "until",
		`until = "5"`:                           "like \"20us\"",
		`until = "-5ms"`:                        "out of range",
		`until = "0.0001ps"`:                    "too exact",
		"[network]\nrate = \"9e9Tb/s\"":         "like \"100Gb/s\"",
		"[network]\nrate = \"99999999999Tb/s\"": "out of range",
		"[network]\nspeed = 5":                  "there is no setting \"network.speed\"",
		"name = \"mine\"\n[network]\nspeed = 5": "scenario \"mine\": line 3: there is no setting",
		"name = \"mine\"\n[[traffic]]\nkind = \"incast\"\nfrom = 1": "scenario \"mine\": line 2: traffic 1",
		"x = [":                                               "line 1",
		"[network]\nratee = 5":                                "[network] has topology, hosts, leaves, spines, hosts_per_leaf, k,",
		"[network]\ntopolgy = \"star\"":                       "red, routing, flowlet_gap, up_down, cut_through, watchdog, converge, loss, switch, burst, ber, oversubscription, core_oversubscription (do you mean topology?)",
		"seeed = 5":                                           "a scenario has name, seed, until, limit, warm, every, cores, network, adapter, traffic, failure",
		"[network.red]\nkmax2 = 5":                            "[network.red] has kmin, kmax, pmax",
		"[adaptor]\nmtu = 1024":                               "there is no setting \"adaptor\": a scenario has name,",
		"[[traffic]]\nhost = 1":                               "[[traffic]] has kind, name, hosts, from, to,",
		"[[failure]]\ncabel = 1":                              "[[failure]] has kind, cable, between, node, rate, delay, loss, at, until, every, for (do you mean cable?)",
		"[network]\nlossy = \"yes\"":                          "line 2 (last key \"network.lossy\"): it must be true or false, without quotes",
		"[network]\nhosts = \"9\"":                            "line 2 (last key \"network.hosts\"): it must be a whole number, without quotes",
		"[network]\ntopology = 9":                             "line 2 (last key \"network.topology\"): it must be a text in quotes",
		"[network]\nloss = \"1%\"":                            "line 2 (last key \"network.loss\"): it must be a number, without quotes",
		"[traffic]\nkind = \"incast\"":                        "it is a list: write [[traffic]]",
		"[[network]]\ntopology = \"star\"":                    "there is only one: write one bracket, as in [network]",
		"network = 5":                                         "it is a table: write its name in brackets",
		"[network]\nred = 5":                                  "line 2 (last key \"network.red\"): it is a table",
		"traffic = 5":                                         "it is a list",
		"loss = 0":                                            "it is a list of packets of flows, written [[loss]]; the share that cables lose at random is network.loss",
		"mark = 5":                                            "it is a list of packets of flows, written [[mark]]; from where on switches mark is network.red",
		"[network.link]\ncount = 2":                           "write [[network.link]] with two brackets",
		"[network.class]\ndscp = 2":                           "write [[network.class]] with two brackets",
		"[network]\ntopology = \"pair\"\nlossy = true":        "line 1: network, pair: it has no lossy, which is a setting of switches",
		"[[failure]]\nat.x = 5":                               "failure.at",
		"limit = \"1ms\"\nuntil = \"1ms\"":                    "limit is for a run without until",
		"[network]\nflowlet_gap = \"1us\"":                    "network.flowlet_gap is for routing = \"flowlet\"",
		"[network]\nlossy = true\nwatchdog = \"1ms\"":         "network.watchdog ends pauses",
		"[network]\ntopology = \"star\"\nleaves = 2":          "network, star: it has no leaves",
		"[network]\ntopology = \"star\"\nup_rate = \"1Gb/s\"": "network, star: it has no up_rate",
		"[network]\ntopology = \"hpcc\"\nrate = \"1Gb/s\"":    "network, hpcc: it has no rate",
		"[[traffic]]\nkind = \"incast\"\nfrom = 1":            "traffic 1, incast: it has no from",
		"[[traffic]]\nkind = \"incast\"\nload = 0.5":          "traffic 1, incast: it has no load",
		"[[traffic]]\nkind = \"load\"\nbytes = \"9B\"\nsizes = \"hadoop\"":                      "traffic 1, load: it has no bytes beside sizes",
		"[[traffic]]\nkind = \"load\"\nbytes = \"9B\"\n[[traffic]]\nkind=\"ring\"\nop=\"read\"": "traffic 2, ring: it has no op",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; it should say %q", text, err, want)
		}
	}
}

// Each topology with switches has all settings of switches.
func TestSettingsOfSwitches(t *testing.T) {
	t.Parallel()
	for _, topology := range topologies {
		for _, set := range []string{"class = [{ dscp = 9, number = 1 }]", "routing = \"spray\"", "up_down = true", "cut_through = true", "lossy = true",
			"watchdog = \"1ms\"", "buffer = \"1MB\"", "queue_max = \"1MB\"", "alpha = 1", "red = { kmax = \"9KB\" }", "switch = { int = true }"} {
			name, _, _ := strings.Cut(set, " ")
			switch _, err := Parse([]byte("[network]\ntopology = \"" + topology + "\"\n" + set)); {
			case topology == "pair":
				if err == nil || !strings.HasSuffix(err.Error(), "network, pair: it has no "+name+", which is a setting of switches") {
					t.Errorf("%s of a pair: %v", name, err)
				}
			case err != nil:
				t.Errorf("%s of %s: %v", name, topology, err)
			}
		}
	}
}

// What a scenario cannot mean is said, and nothing is played.
func TestWrongScenarios(t *testing.T) {
	t.Parallel()
	good := func() Scenario {
		return Scenario{Network: Network{Topology: "star", Hosts: 4}, Traffic: []Traffic{{Kind: "incast", Senders: 3, Bytes: 1000}}}
	}
	if s := good(); s.Seed != 0 {
		t.Fatal()
	} else if _, err := newRun(&s, nil); err != nil {
		t.Fatal(err)
	}
	nan := 0.0
	nan /= nan
	alpha := 99
	for want, change := range map[string]func(s *Scenario){
		`adapter.control: bad choice of congestion control: "x" is none of window, static, dcqcn, dcqcn-adapter, dcqcn-host`: func(s *Scenario) { s.Adapter.Control = "x" },

		"no traffic":                               func(s *Scenario) { s.Traffic = nil },
		"warm is 2us":                              func(s *Scenario) { s.Until, s.Warm = us, 2*us },
		"network.topology says":                    func(s *Scenario) { s.Network.Topology = "" },
		"leaf-spine":                               func(s *Scenario) { s.Network.Topology = "mesh" },
		"spectrum":                                 func(s *Scenario) { s.Network.Profile = "x" },
		"flowlet":                                  func(s *Scenario) { s.Network.Routing = "x" },
		"network.loss is 2":                        func(s *Scenario) { s.Network.Loss = 2 },
		"network.loss is NaN":                      func(s *Scenario) { s.Network.Loss = nan },
		"network.alpha is 99":                      func(s *Scenario) { s.Network.Alpha = &alpha },
		"line is 5, in bits per second":            func(s *Scenario) { s.Adapter.Control = "dcqcn,line=5" },
		"min is 400000000000, in bits":             func(s *Scenario) { s.Adapter.Control = "dcqcn-host,min=400G" },
		"network.hosts is 1: it is 2 to 65535":     func(s *Scenario) { s.Network.Hosts = 1 },
		"network.hosts is 65536: it is 2 to 65535": func(s *Scenario) { s.Network.Hosts = 1 << 16 },
		"network.hosts is -3: it is 2 to 65535":    func(s *Scenario) { s.Network.Hosts = -3 },
		"network.rate is":                          func(s *Scenario) { s.Network.Rate = 1 },
		"network.up_delay is":                      func(s *Scenario) { s.Network.UpDelay = 2_000_000 * us },
		"network.red.kmin is":                      func(s *Scenario) { s.Network.RED = &RED{Kmin: 5000, Kmax: 1000} },
		"network.buffer is":                        func(s *Scenario) { s.Network.Buffer = 1 },
		"adapter.turn is":                          func(s *Scenario) { s.Adapter.Turn = 64<<10 + 1 },
		"adapter.read_chunk is":                    func(s *Scenario) { s.Adapter.ReadChunk = 1 << 40 },
		"at or until is negative":                  func(s *Scenario) { s.Failures = []Failure{{At: -us}} },
		"take one of the two sizes out":            func(s *Scenario) { s.Adapter.Control, s.Adapter.Window = "static,bytes=64K", 1000 },
		"go-back-n":                                func(s *Scenario) { s.Adapter.Recovery = "x" },
		"notify_scope":                             func(s *Scenario) { s.Adapter.NotifyScope = "x" },
		"adapter.mtu":                              func(s *Scenario) { s.Adapter.MTU = 1500 },
		"adapter.dscp is 64":                       func(s *Scenario) { s.Adapter.DSCP = 64 },
		"(do you mean incast?)":                    func(s *Scenario) { s.Traffic[0].Kind = "incats" },
		"there is no such kind":                    func(s *Scenario) { s.Traffic[0].Kind = "x" },
		"op is \"x\"":                              func(s *Scenario) { s.Traffic[0].Op = "x" },
		"9 senders":                                func(s *Scenario) { s.Traffic[0].Senders = 9 },
		"set until":                                func(s *Scenario) { s.Traffic[0].Bytes = 0 },
		"from host 0 to host 9":                    func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "flow", To: 9, Bytes: 1} },
		"at most 16GiB":                            func(s *Scenario) { s.Traffic[0].Bytes = 1 << 40 },
		"when arrivals end":                        func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "load", Sizes: "hadoop", Load: .5} },
		"load is 7":                                func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "load", Sizes: "hadoop", Load: 7, Until: us} },
		"how long flows are":                       func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "load", Load: .5, Until: us} },
		"no flow sizes":                            func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "load", Sizes: "x", Load: .5, Until: us} },
		"ranks":                                    func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "ring", Ranks: 9, Bytes: 1} },
		"failure 1: there is no cable 9":           func(s *Scenario) { s.Failures = []Failure{{Cable: 9}} },
		"before it fails":                          func(s *Scenario) { s.Failures = []Failure{{At: 2 * us, Until: us}} },
		"adapter.timeout is 270":                   func(s *Scenario) { s.Adapter.Timeout = 270 },
		"before they start":                        func(s *Scenario) { s.Traffic[0] = Traffic{Kind: "load", Bytes: 9, Load: .5, Start: 2 * us, Until: us} },
		"adapter.window":                           func(s *Scenario) { s.Adapter.Window = -1 },
		"network.buffer or another":                func(s *Scenario) { s.Network.Buffer = -1 },
	} {
		s := good()
		change(&s)
		if _, err := newRun(&s, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; it should say %q", err, want)
		}
	}
}

// What goes wrong in a run has the name of the scenario, if it has one.
func TestErrorsNameTheScenario(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "there is no traffic", "mine": "scenario \"mine\": there is no traffic"} {
		if _, err := Run(t.Context(), Scenario{Name: name}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; it should begin with %q", err, want)
		}
	}
	s := Scenario{Name: "mine", Limit: 5 * us, Network: Network{Topology: "star"}, Traffic: []Traffic{{Kind: "incast", Senders: 1, Bytes: 1 << 20}}}
	if _, err := Run(t.Context(), s); err == nil || !strings.HasPrefix(err.Error(), "scenario \"mine\": at 5us: 1 flows have not completed") {
		t.Errorf("%v", err)
	}
}

// A run that comes to its limit says if that is because nothing moves.
func TestDeadlockAtTheLimit(t *testing.T) {
	t.Parallel()
	text, err := Text("deadlock")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s.Until, s.Warm, s.Limit = 0, 0, 5000*us
	for i := range s.Traffic {
		s.Traffic[i].Bytes = 100 << 20
	}
	if _, err := Run(t.Context(), s); err == nil || !strings.Contains(err.Error(), "the network stands still, in pauses that do not end") {
		t.Errorf("%v", err)
	}
}

// A setting that is 0 does not mean its default: the error says what it may be,
// and where it is.
func TestZerosAreNoDefaults(t *testing.T) {
	t.Parallel()
	const text = `name = "x"
until = "0s"
limit = "0s"
every = "0s"
cores = 0
[network]
hosts = 0
rate = "0Gb/s"
up_rate = "0b/s"
delay = "0us"
up_delay = "0us"
buffer = "0B"
queue_max = "0MB"
flowlet_gap = "0us"
converge = "0us"
machines_per_leaf = 0
scale_up_rate = "0b/s"
scale_up_delay = "0s"
oversubscription = 0
core_oversubscription = 0
[network.switch]
credit_buffer = "0B"
[[network.link]]
rate = "0b/s"
delay = "0us"
count = 0
[[network.class]]
weight = 0
[adapter]
mtu = 0
dscp = 0
window = "0B"
notify = "0us"
min_probe = "0us"
timeout = 0
read_chunk = "0B"
turn = "0B"
[[traffic]]
ranks = 1
[[traffic]]
ranks = 0
until = "0us"
src_port = 0
dscp = 0
window = "0B"
queue_pairs = 0
rate = "0Gb/s"
iterations = 0
group = 0
[traffic.tcp]
mss = 0
initial_window = 0
min_rto = "0s"
ack_every = 0
ack_delay = "0s"
[[failure]]
until = "0us"
rate = "0b/s"
delay = "0us"
loss = 0.0
every = "0us"
for = "0us"
`
	lines := strings.Split(text, "\n")
	table, seen := "", 0
	for i, line := range lines {
		if strings.HasPrefix(line, "[") {
			table = strings.Trim(line, "[]") + "."
		}
		name, value, _ := strings.Cut(line, " = ")
		if !strings.HasPrefix(strings.Trim(value, "\""), "0") {
			continue
		}
		alone := slices.Clone(lines) // without the other ones
		for j, other := range alone {
			if j != i && strings.Contains(other, "=") && j > 0 {
				alone[j] = ""
			}
		}
		want := fmt.Sprintf("scenario \"x\": line %d: %s%s is 0: it is ", i+1, table, name)
		if _, err := Parse([]byte(strings.Join(alone, "\n"))); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; it should begin with %q", err, want)
		}
		seen++
	}
	if seen != len(notZero) {
		t.Errorf("%d settings were tried, and there are %d", seen, len(notZero))
	}
	// What 0 is a value of may be 0.
	for _, text := range []string{"seed = 0\nwarm = \"0s\"", "[network]\nloss = 0\nalpha = 0\nwatchdog = \"0s\"", "[network]\nred = { kmin = \"0B\", kmax = \"0B\" }",
		"[[traffic]]\nkind = \"flow\"\nfrom = 0\nto = 0\nstart = \"0s\"", "[[failure]]\ncable = 0\nat = \"0s\""} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
