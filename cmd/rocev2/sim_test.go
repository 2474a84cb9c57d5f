package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric/lab"
)

func runSim(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"sim"}, args...), streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

const tinyScenario = `
name = "tiny"
[network]
topology = "star"
hosts = 5
[[traffic]]
kind = "incast"
senders = 4
bytes = "64KiB"
`

// A scenario of a file is played; the seed decides, and the directory has all.
func TestSim(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "tiny.toml"), filepath.Join(dir, "a", "b")
	if err := os.WriteFile(file, []byte(tinyScenario), 0o666); err != nil {
		t.Fatal(err)
	}
	code, first, errs := runSim(t, file, "--seed", "3", "--out", out)
	if code != 0 || !strings.Contains(first, "tiny: 5 hosts, seed 3") || !strings.Contains(first, "4 completed") || !strings.Contains(errs, "played in") {
		t.Fatalf("status %d\n%s\n%s", code, first, errs)
	}
	if _, again, _ := runSim(t, file, "--seed", "3"); again != first {
		t.Errorf("one time\n%s\nanother time\n%s", first, again)
	}
	if _, parts, _ := runSim(t, file, "--seed", "3", "--cores", "3"); parts != first {
		t.Errorf("on one core\n%s\non three\n%s", first, parts)
	}
	if _, other, _ := runSim(t, file); other == first || !strings.Contains(other, "seed 0") {
		t.Errorf("without a seed\n%s", other)
	}
	if _, kept, _ := runSim(t, filepath.Join(out, "scenario.toml")); kept != first {
		t.Errorf("the scenario that was kept\n%s", kept)
	}
	for name, want := range map[string]string{"result.txt": first, "scenario.toml": tinyScenario, "queues.svg": "<svg", "rates.svg": "Gb/s"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v\n%s", name, err, b)
		}
	}
}

// A seed takes the place of the scenario's own, and of no other setting.
func TestSimSeed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uint64{
		tinyScenario:                            7,
		"seed = 3 # a comment\n[network]":       7,
		"name = \"x\"\n  \"seed\"=3\n[network]": 1<<64 - 1,
		"# seed = 3\n[network]\n# seed = 4\n":   0,
		"until = \"1ms\" # seed = 3":            1 << 63,
		"name = \"\"\"\nseed = 3\n\"\"\"":       9,
	} {
		s, err := lab.Parse(withSeed([]byte(text), want))
		if err != nil || s.Seed != want {
			t.Errorf("%q: seed %d, %v; want %d", text, s.Seed, err, want)
		}
	}
}

// The scenarios of the program can be printed, and what is printed is one.
func TestSimPrint(t *testing.T) {
	t.Parallel()
	code, out, _ := runSim(t, "incast", "--print")
	if code != 0 || !strings.Contains(out, "[[traffic]]") {
		t.Errorf("status %d\n%s", code, out)
	}
}

func TestSimMistakes(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.toml")
	if err := os.WriteFile(file, []byte("[network]\nspeed = 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	nameless := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(nameless, []byte("seed = 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, nameless); code != exitFailure || !strings.Contains(errs, "scenario \"mine\": there is no traffic") {
		t.Errorf("status %d, %s", code, errs)
	}
	for want, args := range map[string][]string{
		"takes one scenario":               nil,
		"no scenario \"x\"; there are all": {"x"},
		"no file ./x":                      {"./x"},
		"no setting \"network.speed\"":     {file},
		"--seed \"-3\": it must be a whole number from 0 to 18446744073709551615": {"incast", "--seed", "-3"},
		"--cores is 0: it is 1 to 64": {"incast", "--cores", "0"},
	} {
		if code, _, errs := runSim(t, args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %s", args, code, errs)
		}
	}
}

// What goes wrong in a run names the file, and the line of what is wrong there.
func TestSimErrorsNameTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"[network]\ntopology = \"star\"\nloss = 7\n[[traffic]]\nkind = \"incast\"\nsenders = 1\nbytes = \"1B\"\n":         "x.toml: scenario \"x\": line 3: network.loss is 7",
		"name = \"mine\"\n[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"incast\"\nsenders = 4\n":                  "x.toml: scenario \"mine\": line 4: traffic 1, incast",
		"cores = 99\n[network]\ntopology = \"star\"\nrouting = \"x\"\n[[traffic]]\nkind = \"incast\"\n":                   "x.toml: scenario \"x\": line 4: network.routing is",
		"limit = \"2us\"\n[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"incast\"\nsenders = 1\nbytes = \"1MB\"\n": "x.toml: scenario \"x\": at 2us: 1 flows",
		"[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1B\"\nsrc_port = 9\n":            "x.toml: scenario \"x\": line 3: traffic 1, flow: src_port is 9",
	} {
		file := filepath.Join(dir, "x.toml")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := runSim(t, file); code != exitFailure || strings.Count(errs, dir) != strings.Count(errs, "scenario") || !strings.Contains(errs, want) {
			t.Errorf("status %d, %s; it should say %s", code, errs, want)
		}
	}
}

// An interrupt ends a run, which writes what it has come to.
func TestSimInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	dir := filepath.Join(t.TempDir(), "out")
	code := run(ctx, []string{"sim", "incast", "--out", dir}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	if code != exitFailure || !strings.Contains(out.String(), "digest") || !strings.Contains(out.String(), "ended early: ") || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("status %d, %s%s", code, &out, &errs)
	}
	resultIn(t, dir, out.String())
}

// resultIn checks that a directory has a result.
func resultIn(t *testing.T, dir, text string) {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(dir, "result.txt")); err != nil || string(b) != text {
		t.Errorf("%v\n%s\nwant\n%s", err, b, text)
	}
}

// A run that comes to its limit writes what it has come to, and which flows
// hang and where.
func TestSimAtTheLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, result := filepath.Join(dir, "x.toml"), filepath.Join(dir, "result")
	if err := os.WriteFile(file, []byte("limit = \"9us\"\n"+tinyScenario), 0o666); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runSim(t, file, "--out", result)
	if code != exitFailure || !strings.Contains(errs, "x.toml: scenario \"tiny\": at 9us: 4 flows have not completed") {
		t.Errorf("status %d, %s", code, errs)
	}
	for _, want := range []string{"digest", "unfinished", "host 4 to 0", "packets wait in switch 0, port 0"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	resultIn(t, result, out)
	if _, err := os.Stat(filepath.Join(result, "queues.svg")); err != nil {
		t.Error(err)
	}
}

// Flows that have failed make the run fail, unless that is allowed.
func TestSimFailedFlows(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.toml")
	if err := os.WriteFile(file, []byte(tinyScenario+"[adapter]\ntimeout = 1\n[[failure]]\ncable = 0\nat = \"3us\"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runSim(t, file)
	if code != exitFailure || !strings.Contains(errs, "4 flows have failed") || !strings.Contains(errs, "--allow-failures") || !strings.Contains(out, "host 4 to 0  ") {
		t.Errorf("status %d\n%s\n%s", code, out, errs)
	}
	if code, again, errs := runSim(t, file, "--allow-failures"); code != exitOK || again != out {
		t.Errorf("status %d\n%s\n%s", code, again, errs)
	}
}

// What the program brings is found beside a file or a directory of its name;
// these are named by their path.
func TestSimNamesComeFirst(t *testing.T) { // not parallel: it changes the directory
	t.Chdir(t.TempDir())
	code, first, errs := runSim(t, "incast", "--out", "incast")
	if code != exitOK {
		t.Fatalf("status %d, %s", code, errs)
	}
	if code, again, errs := runSim(t, "incast", "--out", "incast"); code != exitOK || again != first {
		t.Errorf("status %d, %s\n%s", code, again, errs)
	}
	for _, name := range []string{"./incast", "incast/"} {
		if code, _, errs := runSim(t, name); code != exitUsage || !strings.Contains(errs, "is a directory: name the scenario in it, such as "+filepath.Join("incast", "scenario.toml")) {
			t.Errorf("%s: status %d, %s", name, code, errs)
		}
	}
	for _, name := range []string{"victim", "mine"} {
		if err := os.WriteFile(name, []byte(tinyScenario), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"victim": "20 hosts", "./victim": "5 hosts", "mine": "5 hosts"} {
		if code, out, errs := runSim(t, name); code != exitOK || !strings.Contains(out, want) {
			t.Errorf("%s: status %d, %s%s; want %s", name, code, out, errs, want)
		}
	}
}

// What cannot be written shows before the run.
func TestSimOutIsAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, filepath.Join(file, "result")} {
		if code, out, errs := runSim(t, "incast", "--out", name); code != exitFailure || out != "" || !strings.Contains(errs, "--out") || !strings.Contains(errs, file) {
			t.Errorf("status %d, %s%s", code, out, errs)
		}
	}
}

// A long run says how far it is, and when it will end where that can be told.
func TestSimProgress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at   lab.Progress
		want string
	}{
		{lab.Progress{Now: 5 * lab.Microsecond, End: 20 * lab.Microsecond, Events: 12e6, Open: 3}, "x: 5us of 20us of virtual time, 3 flows open, 1.20 M events/s, 10s, about 30s to go\n"},
		{lab.Progress{Now: 5 * lab.Microsecond, Events: 1e6, Open: 75}, "x: 5us of virtual time, 75 flows open, 0.10 M events/s, 10s, about 30s to go\n"},
		{lab.Progress{Now: 5 * lab.Microsecond, Events: 1e6}, "x: 5us of virtual time, 0 flows open, 0.10 M events/s, 10s\n"},
	} {
		var errs strings.Builder
		p := newProgress(streams{err: &errs}, true)
		p.start = p.start.Add(-10 * time.Second)
		show := simProgress(p, "x")
		if c.at.End == 0 && c.at.Open > 0 {
			p.last = time.Now()
			show(lab.Progress{Open: 100})
			p.last = time.Time{}
		}
		if show(c.at); errs.String() != c.want {
			t.Errorf("it says %q, want %q", errs.String(), c.want)
		}
	}
}

// Parts of a sweep that are played by processes of their own, one of which is
// killed and played again, have together what one process has.
func TestSimShards(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.toml")
	if err := os.WriteFile(file, []byte(tinyScenario), 0o600); err != nil {
		t.Fatal(err)
	}
	sweep := []string{file, "--set", "adapter.control=window,static", "--set", "traffic.0.bytes=64KiB,1MiB", "--seeds", "1-40"}
	out := func(i int) string { return filepath.Join(dir, fmt.Sprint("shard-", i)) }
	shard := func(i int) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), self, append([]string{"sim", "--json", "--jobs", "1", "--shard", fmt.Sprintf("%d/3", i), "--out", out(i)}, sweep...)...)
		cmd.Env = append(os.Environ(), demoPeerEnv+"=1")
		return cmd
	}
	killed := shard(1)
	lines, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(lines).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	killed.Process.Kill()
	killed.Wait()
	// What it was writing may be there in part.
	f, err := os.OpenFile(filepath.Join(out(1), runsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"plan":"`); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, "--merge", out(1)); code == exitOK || !strings.Contains(errs, "of 160 runs") {
		t.Errorf("a part is merged: exit status %d\n%s", code, errs)
	}
	for i := range 3 {
		if text, err := shard(i + 1).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	code, merged, errs := runSim(t, "--merge", out(1), out(2), out(3))
	if code != exitOK {
		t.Fatalf("exit status %d\n%s", code, errs)
	}
	code, whole, errs := runSim(t, append(sweep, "--out", filepath.Join(dir, "whole"))...)
	if code != exitOK || whole != merged || !strings.Contains(whole, "40 pairs") {
		t.Errorf("exit status %d\n%s\nat once\n%s\nin shards\n%s", code, errs, whole, merged)
	}
	// Again: all is there.
	if code, again, errs := runSim(t, append(sweep, "--out", filepath.Join(dir, "whole"))...); code != exitOK || again != whole {
		t.Errorf("exit status %d\n%s\n%s", code, errs, again)
	}
	if code, _, errs := runSim(t, append(sweep, "--seeds", "1-3", "--out", out(1))...); code == exitOK || !strings.Contains(errs, "of the sweep") {
		t.Errorf("records of another sweep are added to: exit status %d\n%s", code, errs)
	}
}

// Two processes that play one sweep into one directory do it twice, and leave
// all of it.
func TestSimSweepTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "tiny.toml"), filepath.Join(dir, "out")
	if err := os.WriteFile(file, []byte(tinyScenario), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if code, _, errs := runSim(t, file, "--seeds", "1-60", "--jobs", "2", "--out", out); code != exitOK {
				t.Errorf("exit status %d\n%s", code, errs)
			}
		})
	}
	wg.Wait()
	if code, all, errs := runSim(t, "--merge", out); code != exitOK || !strings.Contains(all, "60 runs") {
		t.Errorf("exit status %d\n%s%s", code, all, errs)
	}
}

// What is not written is an error: records that go nowhere are no success.
func TestSimOutputFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tiny.toml")
	if err := os.WriteFile(file, []byte(tinyScenario), 0o600); err != nil {
		t.Fatal(err)
	}
	full := writerFunc(func([]byte) (int, error) { return 0, errors.New("no space left on device") })
	for _, args := range []string{"--json", "--json --seeds 1-9", "--seeds 1-9", ""} {
		var said strings.Builder
		code := run(t.Context(), append([]string{"sim", file}, strings.Fields(args)...), streams{out: full, err: &said})
		if code != exitFailure || !strings.Contains(said.String(), "no space left") {
			t.Errorf("sim %s: exit status %d: %s", args, code, said.String())
		}
	}
}

// Flags that a merge does not look at are mistakes, and so are more runs than
// fit.
func TestSimMergeFlags(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--seeds 1-3", "--set a.b=1", "--jobs 2", "--shard 1/2", "--seed 3", "--progress"} {
		if code, _, errs := runSim(t, append([]string{"--merge", "x"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(errs, "--merge plays none") {
			t.Errorf("sim --merge x %s: exit status %d: %s", args, code, errs)
		}
	}
	var many []string
	for i := range 3000 {
		many = append(many, fmt.Sprint(i))
	}
	args := []string{"incast"}
	for _, key := range []string{"a", "b", "c", "d"} {
		args = append(args, "--set", key+"="+strings.Join(many, ","))
	}
	if code, _, errs := runSim(t, args...); code != exitUsage || !strings.Contains(errs, "more than 1048576") {
		t.Errorf("exit status %d: %s", code, errs)
	}
}

// One run may have settings, too, and a result that programs read.
func TestSimSet(t *testing.T) {
	t.Parallel()
	code, out, errs := runSim(t, "incast", "--set", "until=200us", "--set", "warm=1us", "--set", "network.hosts=4", "--set", "traffic.0.senders=2", "--json")
	var s lab.Summary
	if err := json.Unmarshal([]byte(out), &s); code != exitOK || err != nil || s.Hosts != 4 || s.VirtualUs != 200 {
		t.Errorf("exit status %d, %v, %+v\n%s", code, err, s, errs)
	}
	dir := t.TempDir()
	text := strings.Replace(tinyScenario, "kind = \"incast\"\nsenders = 4\nbytes = \"64KiB\"", "kind = \"list\"\nfile = \"flows.csv\"", 1)
	file := filepath.Join(dir, "mine.toml")
	err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "flows.csv"), []byte("from,to,bytes\n0,1,5\n1,2,7\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runSim(t, file); code != exitOK || !strings.Contains(out, "2 completed") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	code, whole, _ := runSim(t, file, "--print")
	if err := errors.Join(os.WriteFile(file, []byte(whole), 0o600), os.Remove(filepath.Join(dir, "flows.csv"))); code != exitOK || err != nil {
		t.Fatal(code, err)
	}
	if code, out, errs := runSim(t, file, "--seeds", "1-2"); code != exitOK || !strings.Contains(out, "2 runs") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"--trace is for one run":   {"incast", "--seeds", "1-2", "--trace", "x"},
		"--shard is \"4/3\"":       {"incast", "--seeds", "1-2", "--shard", "4/3"},
		"--seeds: \"x\"":           {"incast", "--seeds", "x"},
		"network.hosts is 9999999": {"incast", "--set", "network.hosts=9999999,2"},
		"--set: \"x\"":             {"incast", "--set", "x"},
		"--merge takes":            {"--merge"},
		"there is no":              {"--merge", "/nowhere"},
		"cannot both":              {"incast", "--seeds", "1-2", "--seed", "3"},
		"--seeds is empty":         {"incast", "--seeds", ""},
		"--shard is empty":         {"incast", "--shard", ""},
		"--out is empty":           {"incast", "--out="},
		"with --seeds":             {"incast", "--set", "seed=1,2"},
	} {
		if code, _, errs := runSim(t, args...); code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("%q: exit status %d, %q; want %q", args, code, errs, want)
		}
	}
}
