package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tracedNames returns how often the file of --trace has each name.
func tracedNames(t *testing.T, file string) map[string]int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct{ Name string }
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, r := range all {
		names[r.Name]++
	}
	return names
}

// --trace has what the queue pairs decided, beside faults and a capture.
func TestTraceFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := func(side string) []string {
		return []string{"perf", "write_bw", "-n", "200", "-q", "2", "--fault", "drop:every=50:dir=out", "--stats=json", "--trace", filepath.Join(dir, side)}
	}
	s, c := sides(t, args("server"), args("client"))
	names := tracedNames(t, filepath.Join(dir, "client"))
	again := 0
	for name, n := range names {
		if strings.HasPrefix(name, "sent: ") {
			again += n
		}
	}
	st := statsOf(t, c.out)[0]
	if n := counterOf(t, st, "queue_pairs", "retransmits"); n == 0 || again != n {
		t.Errorf("%d packets sent again in the file, %d counted: %v\n%s", again, n, names, s.err)
	}
	if names["state: RTS"] < 2 || names["sent"] == 0 || names["acked"] == 0 {
		t.Errorf("%v", names)
	}
	if names := tracedNames(t, filepath.Join(dir, "server")); names["state: RTS"] < 2 {
		t.Errorf("the server: %v", names)
	}
}

func TestTraceOfSim(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.toml")
	if err := os.WriteFile(file, []byte(tinyScenario), 0o666); err != nil {
		t.Fatal(err)
	}
	_, plain, _ := runSim(t, file)
	code, out, errs := runSim(t, file, "--trace", filepath.Join(dir, "trace"))
	if code != 0 || out != plain {
		t.Fatalf("status %d\n%s\n%s", code, out, errs)
	}
	if names := tracedNames(t, filepath.Join(dir, "trace")); names["process_name"] < 4 || names["sent"] == 0 {
		t.Errorf("%v", names)
	}
}

func TestTraceErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		want string
	}{
		{"", "--trace has no file"},
		{filepath.Join(t.TempDir(), "none", "file"), "no such file"},
	} {
		if code, _, errs := runSim(t, "incast", "--trace", c.name); code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, %s", c.name, code, errs)
		}
	}
	if _, err := os.Stat("/dev/full"); err == nil {
		if code, _, errs := runSim(t, "incast", "--trace", "/dev/full"); code == 0 || !strings.Contains(errs, "the file is not complete") {
			t.Errorf("a full device: status %d, %s", code, errs)
		}
	}
}
