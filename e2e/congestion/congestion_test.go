//go:build linux

package congestion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

const (
	enableEnv = "ROCEV2_MEASURE" // set: run the tests; "require": fail where they cannot run
	binEnv    = "ROCEV2_E2E_BIN" // the program under test, instead of building it
	nsPrefix  = "rocev2-marks-"
	nsDir     = "/run/netns"
	root      = "../.." // of the repository
	manual    = root + "/docs/fabric.md"

	// payloadRate is what the router's cable carries of data, in Gb/s: 4096
	// bytes of each 4154, which tbf counts.
	payloadRate = 4096.0 / 4154
	attempts    = 5 // of a cell, if the machine has taken its processors away
)

var needs = []guest.Need{
	{File: "ip", Package: "iproute2"}, {File: "tc", Package: "iproute2"},
	{File: "nft", Package: "nftables"}, {File: "ethtool", Package: "ethtool"},
}

// cells are what two senders at once do.
var cells = []struct {
	name, op, control string
	rates             bool // rates are cut, and else windows
}{
	{"write-window", "write_bw", "window", false},
	{"write-dcqcn", "write_bw", "dcqcn-host,line=1G", true},
	{"read-dcqcn", "read_bw", "dcqcn-host,line=1G", true},
}

// TestTwoSenders has two senders share 1 Gb/s of a router of Linux that marks
// packets. With congestion control they fill it, evenly, and nothing is lost.
// Without, most is.
func TestTwoSenders(t *testing.T) {
	n := newNet(t)
	for _, c := range cells {
		t.Run(c.name, func(t *testing.T) {
			for attempt := 1; ; attempt++ {
				r := n.run(t, c.op, "--congestion", c.control)
				err := r.check(c.rates)
				t.Logf("%v", r)
				switch {
				case err == nil:
					return
				case r.undisturbed() && r.together():
					t.Fatal(err)
				case attempt == attempts:
					t.Skipf("the machine is too busy for what is to be shown: %v", err)
				}
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		r := n.run(t, "write_bw", "--congestion", "static")
		for attempt := 1; !r.together() && attempt < attempts; attempt++ {
			r = n.run(t, "write_bw", "--congestion", "static")
		}
		t.Logf("%v", r)
		if r.dropped < r.sent/10 {
			t.Errorf("a window that never changes lost %d of %d packets: so what shows that congestion control avoids losses?", r.dropped, r.sent+r.dropped)
		}
	})
}

// TestManual runs the commands of the manual.
func TestManual(t *testing.T) {
	n := newNet(t)
	text, err := os.ReadFile(manual)
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^\$ sudo (internal/scripts/marking-net\.sh .*)$`).FindAllSubmatch(text, -1)
	if len(commands) < 3 {
		t.Fatalf("%s has %d commands, not up, run and down", manual, len(commands))
	}
	for _, c := range commands {
		out, err := n.command(t, strings.Fields(string(c[1]))...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c[1], err, out)
		}
		if strings.Contains(string(c[1]), " run ") {
			parse(t, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(nsDir, n.name+"-*")); len(left) > 0 {
		t.Errorf("namespaces are left: %v", left)
	}
}

// TestMistakes: a run that was started wrongly ends with the reason, whichever
// side has the wrong flag, and leaves no program running.
func TestMistakes(t *testing.T) {
	n := newNet(t)
	for args, want := range map[string]string{
		"run write_bw --congestion cubic": `"cubic" is none of window`,
		"run read_bw --congestion cubic":  `"cubic" is none of window`,
		"run write":                       "run takes write_bw, send_bw or read_bw",
		"run":                             "run takes write_bw",
	} {
		out, err := n.command(t, append([]string{"internal/scripts/marking-net.sh"}, strings.Fields(args)...)...)
		if err == nil || strings.Count(out, want) != 1 {
			t.Errorf("%s: %v, %q; it should say %s", args, err, out, want)
		}
	}
	for _, ns := range []string{"a", "b", "c"} {
		if pids, err := exec.CommandContext(t.Context(), "ip", "netns", "pids", n.name+"-"+ns).Output(); err != nil || len(pids) > 0 {
			t.Errorf("%s: %v, programs %q are left", ns, err, pids)
		}
	}
	n.script(t, "down")
	out, err := n.command(t, "internal/scripts/marking-net.sh", "run", "write_bw")
	if err == nil || !strings.Contains(out, "there is no network "+n.name) {
		t.Errorf("without a network: %v, %q", err, out)
	}
}

// network is one of scripts/marking-net.sh.
type network struct {
	name, bin, out string
}

// newNet makes a network, or skips the test with the reason.
func newNet(t *testing.T) *network {
	t.Helper()
	if os.Getenv(enableEnv) == "" {
		t.Skipf("rates of a router of Linux are measured with %s=1 (make measure)", enableEnv)
	}
	unable := t.Skipf
	if os.Getenv(enableEnv) == "require" {
		unable = t.Fatalf
	}
	if os.Geteuid() != 0 {
		unable("not root; network namespaces need it")
	}
	var u *guest.Unavailable
	if err := guest.Install(t.Context(), needs, t.Logf); errors.As(err, &u) {
		unable("%v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	removeStale(t)
	n := &network{name: fmt.Sprintf("%s%d", nsPrefix, os.Getpid()), bin: os.Getenv(binEnv), out: t.TempDir()}
	if n.bin == "" {
		n.bin = filepath.Join(t.TempDir(), "rocev2")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", n.bin, "github.com/gosoftroce/rocev2/cmd/rocev2").CombinedOutput(); err != nil {
			t.Fatalf("build cmd/rocev2: %v\n%s", err, out)
		}
	}
	t.Cleanup(func() { n.script(t, "down") })
	if out, err := n.command(t, "internal/scripts/marking-net.sh", "up"); err != nil {
		unable("this kernel has no network with marks: %v: %s", err, out)
	}
	return n
}

// removeStale removes the namespaces of processes that are gone.
func removeStale(t *testing.T) {
	found, _ := filepath.Glob(filepath.Join(nsDir, nsPrefix+"*")) // the pattern is good
	for _, path := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), nsPrefix), "-")
		if p, err := strconv.Atoi(pid); err == nil && errors.Is(unix.Kill(p, 0), unix.ESRCH) {
			_ = exec.CommandContext(t.Context(), "ip", "netns", "delete", filepath.Base(path)).Run() // another run may be faster
		}
	}
}

// command runs a command line in the root of the repository.
func (n *network) command(t *testing.T, argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...) // also after the test has ended
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "NET="+n.name, "ROCEV2="+n.bin, "OUT="+n.out)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (n *network) script(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.command(t, append([]string{"internal/scripts/marking-net.sh"}, args...)...)
	if err != nil {
		t.Fatalf("marking-net.sh %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// result is what two senders have achieved.
type result struct {
	gbps                  [2]float64 // of data
	sent, dropped, marked int        // packets, by the router
	priority              bool       // the programs come before other work of the host
	senders               [2]counters
	sinks                 [2]counters
	idle, stolen          float64 // parts of the processors' time
}

// counters are those of rocev2 perf --stats=json that matter.
type counters struct {
	TxPackets   int `json:"tx_packets"`
	Retransmits int `json:"retransmits"`
	Reordered   int `json:"reordered"`
	NAKs        int `json:"nak_seq_sent"`
	Marked      int `json:"ecn_marked"`
	CNPs        int `json:"cnps_received"`
	WindowCuts  int `json:"window_cuts"`
	RateCuts    int `json:"rate_cuts"`
}

// run has both senders at work.
func (n *network) run(t *testing.T, op string, flags ...string) *result {
	t.Helper()
	before := processors(t)
	out := n.script(t, append([]string{"run", op}, flags...)...)
	after := processors(t)
	r := parse(t, out)
	all := after.all - before.all
	r.idle, r.stolen = (after.idle-before.idle)/all, (after.stolen-before.stolen)/all
	for i, name := range []string{"a", "b"} {
		r.senders[i], r.sinks[i] = n.counters(t, name), n.counters(t, name+".sink")
	}
	return r
}

var resultForm = regexp.MustCompile(`^a: ([0-9.]+) Gb/s\nb: ([0-9.]+) Gb/s\nrouter: (\d+) packets sent, (\d+) dropped, (\d+) marked\n(priority: none\n)?$`)

func parse(t *testing.T, out string) *result {
	t.Helper()
	m := resultForm.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("marking-net.sh printed %q", out)
	}
	r := &result{priority: m[6] == ""}
	for i := range r.gbps {
		r.gbps[i], _ = strconv.ParseFloat(m[1+i], 64) // 0 is an error, too
	}
	for i, n := range []*int{&r.sent, &r.dropped, &r.marked} {
		*n, _ = strconv.Atoi(m[3+i]) // it has digits
	}
	return r
}

// counters reads what a program has printed.
func (n *network) counters(t *testing.T, name string) counters {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(n.out, name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var v struct {
			Stats *struct {
				QPs counters `json:"queue_pairs"`
			}
		}
		if json.Unmarshal(line, &v) == nil && v.Stats != nil {
			return v.Stats.QPs
		}
	}
	t.Fatalf("%s has printed no counters: %s", name, text)
	return counters{}
}

// share is the sum of both as a part of what the cable carries.
func (r *result) share() float64 { return (r.gbps[0] + r.gbps[1]) / payloadRate }

// together reports whether both were at work while they measured. On a busy
// machine one may begin when the other is done: the sum is more than there is.
func (r *result) together() bool { return r.share() < 1.2 }

// jain is Jain's index of fairness: 1 if both get the same, 0.5 if one gets it
// all.
func (r *result) jain() float64 {
	sum, squares := r.gbps[0]+r.gbps[1], r.gbps[0]*r.gbps[0]+r.gbps[1]*r.gbps[1]
	if squares == 0 {
		return 0
	}
	return sum * sum / 2 / squares
}

// again is how many packets were sent again, by both sides.
func (r *result) again() (n int) {
	for i := range r.senders {
		n += r.senders[i].Retransmits + r.sinks[i].Retransmits
	}
	return n
}

func (r *result) String() string {
	return fmt.Sprintf("%.1f %% of the cable, Jain's index %.4f, %d packets, %d dropped, %d marked, %d sent again, %d and %d notifications; processors: %.0f %% idle, %.1f %% stolen",
		100*r.share(), r.jain(), r.sent, r.dropped, r.marked, r.again(), r.senders[0].CNPs, r.senders[1].CNPs, 100*r.idle, 100*r.stolen)
}

// check says what is wrong.
func (r *result) check(rates bool) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(r.share() >= 0.95, "%.1f %% of the cable", 100*r.share())
	must(r.together(), "the senders did not send at the same time: %.1f %% of the cable", 100*r.share())
	must(r.jain() >= 0.95, "Jain's index %.3f", r.jain())
	must(r.dropped == 0, "%d packets dropped", r.dropped)
	// A sender probes a side that is not scheduled for a while.
	must(r.again() <= r.sent/200, "%d of %d packets sent again, and none was lost", r.again(), r.sent)
	for i := range r.senders {
		s, sink := &r.senders[i], &r.sinks[i]
		must(sink.Marked > 0 && s.CNPs > 0 && s.CNPs <= sink.Marked, "%d packets came marked, and %d notifications for them", sink.Marked, s.CNPs)
		if rates {
			must(s.RateCuts > 0, "no rate was cut")
		} else {
			must(s.WindowCuts > 0, "no window was cut")
		}
	}
	return errors.Join(errs...)
}

// undisturbed reports whether the programs had the processors when they wanted
// them.
func (r *result) undisturbed() bool { return r.stolen < 0.01 && (r.priority || r.idle > 0.3) }

// times are of all processors since the host started, in the kernel's ticks.
type times struct{ all, idle, stolen float64 }

func processors(t *testing.T) (v times) {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(first)[1:] {
		ticks, err := strconv.ParseFloat(word, 64)
		if err != nil {
			t.Fatalf("/proc/stat: %q", first)
		}
		switch {
		case i == 3:
			v.idle = ticks
		case i == 7:
			v.stolen = ticks
		case i > 7:
			continue // guests' are in those of the host
		}
		v.all += ticks
	}
	return v
}
