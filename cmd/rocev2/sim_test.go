package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		"limit = \"2us\"\n[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"incast\"\nsenders = 1\nbytes = \"1MB\"\n": "x.toml: scenario \"x\": at 2us: 1 flows",
		"[network]\ntopology = \"star\"\n[[traffic]]\nkind = \"flow\"\nto = 1\nbytes = \"1B\"\nsrc_port = 9\n":            "x.toml: scenario \"x\": line 3: traffic 1, flow: src_port is 9",
	} {
		file := filepath.Join(dir, "x.toml")
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := runSim(t, file); code != exitFailure || !strings.Contains(errs, dir) || !strings.Contains(errs, want) {
			t.Errorf("status %d, %s; it should say %s", code, errs, want)
		}
	}
}

// An interrupt ends a run.
func TestSimInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"sim", "incast"}, streams{in: strings.NewReader(""), out: &out, err: &errs}); code != exitFailure || out.Len() > 0 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("status %d, %s%s", code, &out, &errs)
	}
}
