package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/race"
	"github.com/gosoftroce/rocev2/qp/cc"
)

// The queue that Swift keeps is what the link carries in the time that its
// target is above the round trip: 16 flows have a target of 20 µs, 3 for the
// switch, and what flow scaling adds to windows of some 18 packets.
func TestSwiftKeepsItsTarget(t *testing.T) {
	t.Parallel()
	r := play(t, Scenario{Until: 4000 * us, Warm: 2000 * us, Network: Network{Topology: "star", Hosts: 17, Profile: "hpcc-sim"},
		Adapter: Adapter{MTU: 1024, Control: "swift"}, Traffic: []Traffic{{Kind: "incast", Senders: 16}}})
	const target, alone = 20 + 20/6.55 + 100*(1/4.2-.1)/3.0623, 4.4 // µs
	if got, want := float64(r.Queues[0].Mean), (target-alone)*12_500; got < want*.95 || got > want*1.05 {
		t.Errorf("a mean queue of %.0f bytes, want %.0f", got, want)
	}
	if _, sum, jain := r.Rates(); jain < .999 || sum < 92*Gbps {
		t.Errorf("%v together, Jain %.4f", sum, jain)
	}
}

// More flows than the path holds packets: the windows come below one packet,
// the link stays full, and nothing is dropped or sent again.
func TestSwiftBelowAPacket(t *testing.T) {
	t.Parallel()
	r := play(t, Scenario{Until: 100_000 * us, Warm: 50_000 * us, Network: Network{Topology: "star", Hosts: 129, Rate: 10 * Gbps, Profile: "hpcc-sim"},
		Adapter: Adapter{MTU: 4096, Control: "swift,target=10us"}, Traffic: []Traffic{{Kind: "incast", Senders: 128}}})
	if _, sum, jain := r.Rates(); sum < 9*Gbps || jain < .9 || r.Queues[0].Mean > 128*4200/2 {
		t.Errorf("%v together, Jain %.4f, a mean queue of %d: want a full link, and a queue of less than a packet of each flow", sum, jain, r.Queues[0].Mean)
	}
	if r.Stats.Retransmits > 0 || r.Totals.ClassDrops[3] > 0 { // of class 6 are notifications
		t.Errorf("%d packets sent again, %d dropped", r.Stats.Retransmits, r.Totals.ClassDrops[3])
	}
}

// HPCC has a network tell hosts of its queues, without a setting that says so:
// Eta of the link is used, by whatever writes or reads, and the queue is some
// packets. The same is true with several parts.
func TestHPCCAsksForTelemetry(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		s := Scenario{Until: 8000 * us, Warm: 4000 * us, Network: Network{Topology: "star", Hosts: 9, Profile: "hpcc-sim"},
			Adapter: Adapter{MTU: 4096, Control: "hpcc"}, Traffic: []Traffic{{Kind: "incast", Senders: 8, Op: op}}}
		if op == "read" { // data goes to the host that asks
			s.Traffic, s.Adapter.ReadChunk = nil, 4096
			for i := range 8 {
				s.Traffic = append(s.Traffic, Traffic{Kind: "flow", From: 0, To: i + 1, Op: op})
			}
		}
		r := play(t, s)
		_, sum, jain := r.Rates()
		if sum < 90*Gbps || sum > 95*Gbps || jain < .9 || r.Queues[0].Mean > 20_000 {
			t.Errorf("%s: %v together, Jain %.4f, a mean queue of %d", op, sum, jain, r.Queues[0].Mean)
		}
		s.Cores = 3
		if other := play(t, s); other.Digest != r.Digest {
			t.Errorf("%s: another run with 3 parts", op)
		}
	}
}

// Laws on networks that drop, whose ways change, that spray, and with a port
// for each packet: all flows complete, also with several parts, and with one
// result.
func TestLawsWhereThingsGoWrong(t *testing.T) {
	t.Parallel()
	controls := []string{"hpcc", "hpcc,stages=0", "swift", "timely"}
	if race.Enabled { // it makes all of them minutes long
		controls = controls[:1]
	}
	for _, control := range controls {
		for name, change := range map[string]func(*Scenario){
			"lossy":   func(s *Scenario) { s.Network.Lossy, s.Network.QueueMax = true, 60_000 },
			"loss":    func(s *Scenario) { s.Network.Loss = .01 },
			"failure": func(s *Scenario) { s.Failures = []Failure{{Cable: 33, At: 50 * us, Until: 300 * us}} },
			"spray":   func(s *Scenario) { s.Network.Routing = "spray" },
			"entropy": func(s *Scenario) { s.Adapter.Entropy = "packet" },
			"foreign": func(s *Scenario) { s.Adapter.Recovery, s.Network.Loss = "go-back-n", .001 },
			"tiny":    func(s *Scenario) { s.Adapter.MTU, s.Adapter.Window = 256, 1000 },
		} {
			s := Scenario{Seed: 4, Limit: 2_000_000 * us, Network: Network{Topology: "leaf-spine", Leaves: 4, Spines: 2, HostsPerLeaf: 8, UpRate: 200 * Gbps, Profile: "hpcc-sim"},
				Adapter: Adapter{MTU: 1024, Control: control, Timeout: 8}, Traffic: []Traffic{{Kind: "permutation", Across: 8, Bytes: 256 << 10}, {Kind: "incast", Senders: 12, Bytes: 64 << 10}}}
			if race.Enabled && name != "loss" && name != "entropy" {
				continue
			}
			change(&s)
			r := play(t, s)
			if done, failed, _ := r.Done(); done != 44 || failed > 0 {
				t.Errorf("%s, %s: %d flows of 44 completed, %d failed", control, name, done, failed)
			}
			s.Cores = 2
			if other := play(t, s); other.Digest != r.Digest {
				t.Errorf("%s, %s: another run with 2 parts", control, name)
			}
		}
	}
}

// The page on congestion control has the tables of the experiments.
func TestControlPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "fabric-control.md"))
	must(t, err)
	for _, name := range []string{"laws", "laws-incast", "laws-in-turn"} {
		table, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		must(t, err)
		if !strings.Contains(string(page), "```\n"+string(table)+"```\n") {
			t.Errorf("docs/fabric-control.md has not the table of testdata/%s.txt", name)
		}
	}
}

// Of a control and a controller there is one, and what is wrong with a control
// is said.
func TestControlMistakes(t *testing.T) {
	t.Parallel()
	for control, want := range map[string]string{
		"hpcc,eta=0":     "adapter.control: bad choice of congestion control: \"eta=0\"",
		"swift,hops=300": "hops of Swift is 300: it takes 0 to 255",
		"timely":         "adapter.control and Adapter.Controller choose two",
	} {
		s := Scenario{Network: Network{Topology: "pair"}, Adapter: Adapter{Control: control}, Traffic: []Traffic{{Kind: "flow", To: 1, Bytes: 1}}}
		if control == "timely" {
			s.Adapter.Controller = func() cc.Controller { return cc.NewWindow(cc.Config{}) }
		}
		if _, err := Run(context.Background(), s); err == nil || !strings.Contains(err.Error(), strings.Split(want, ": \"")[0]) {
			t.Errorf("%q: %v, want %s", control, err, want)
		}
	}
}
