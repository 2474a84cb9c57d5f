package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/fabric/lab"
	"github.com/gosoftroce/rocev2/fabric/record"
)

// filesOf returns the files of a directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

func tinyFile(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "tiny.toml")
	if err := os.WriteFile(file, []byte(tinyScenario), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

// All files of a run are the same bytes each time, and but for captures on any
// number of cores. dump reads what --pcap has written.
func TestSimOutputs(t *testing.T) {
	t.Parallel()
	file, dir := tinyFile(t), t.TempDir()
	play := func(name string, more ...string) map[string]string {
		out := filepath.Join(dir, name)
		if code, _, errs := runSim(t, append([]string{file, "--out", out}, more...)...); code != 0 {
			t.Fatalf("status %d\n%s", code, errs)
		}
		return filesOf(t, out)
	}
	first := play("a", "--pcap", "h0", "--pcap", "s0.1-2", "--perfetto", filepath.Join(dir, "p.json"), "--trace", filepath.Join(dir, "t.json"))
	for _, name := range []string{"summary.json", "result.txt", "report.html", "scenario.toml", "h0.pcapng", "s0.1.pcapng", "s0.2.pcapng", "queues.svg"} {
		if first[name] == "" {
			t.Errorf("there is no %s", name)
		}
	}
	for _, table := range record.Tables() {
		if !strings.HasPrefix(first[table.Name], strings.Join(table.Columns, ",")+"\n") || !strings.Contains(first["report.html"], `href="`+table.Name+`"`) {
			t.Errorf("%s: %.100q", table.Name, first[table.Name])
		}
	}
	var summary lab.Summary
	if err := json.Unmarshal([]byte(first["summary.json"]), &summary); err != nil || summary.Completed != 4 {
		t.Errorf("%v, %+v", err, summary)
	}
	if _, out, _ := runSim(t, file, "--json"); out != first["summary.json"] {
		t.Errorf("--json prints\n%s\nand summary.json is\n%s", out, first["summary.json"])
	}
	again := play("a", "--pcap", "h0", "--pcap", "s0.1-2")
	for name := range first {
		if again[name] != first[name] {
			t.Errorf("%s: other bytes", name)
		}
	}
	cores := play("a", "--cores", "3")
	for name := range cores {
		if want := strings.ReplaceAll(first[name], "<li><a href=\"h0.pcapng\">h0.pcapng</a></li>\n<li><a href=\"s0.1.pcapng\">s0.1.pcapng</a></li>\n<li><a href=\"s0.2.pcapng\">s0.2.pcapng</a></li>\n", ""); cores[name] != want {
			t.Errorf("%s: other bytes on three cores", name)
		}
	}
	if cores["h0.pcapng"] != "" {
		t.Error("a capture is left of another run")
	}
	for _, name := range []string{"p.json", "t.json"} {
		var v any
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || json.Unmarshal(b, &v) != nil {
			t.Errorf("%s is no JSON: %v", name, err)
		}
	}
	out := filepath.Join(dir, "b")
	runSim(t, file, "--out", out, "--pcap", "h0 h3")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"dump", filepath.Join(out, "h0.pcapng"), "--stats"}, streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	text, errs := stdout.String(), stderr.String()
	if code != 0 || !strings.Contains(text, "RC_ACKNOWLEDGE") || strings.Contains(text, "malformed,") {
		t.Errorf("status %d\n%s%s", code, text, errs)
	}
}

// What --out would write over, and is not from a run of the scenario, is left
// as it is.
func TestSimOutKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	file := tinyFile(t)
	for name, c := range map[string]struct{ text, want string }{
		"scenario.toml": {"seed = 3\n", "is of another scenario, seed or setting"},
		"flows.csv":     {"from,to,bytes\n", "flows.csv is there already, and not from a run of this scenario"},
		"queues.svg":    {"<svg/>", "is there already"},
		"h0.pcapng":     {"mine", "is there already"},
		"runs.jsonl":    {"", "has the results of many runs"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		code, out, errs := runSim(t, file, "--out", dir)
		if code != exitFailure || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: status %d, %s%s; it should say %s", name, code, out, errs, c.want)
		}
		if files := filesOf(t, dir); len(files) != 1 || files[name] != c.text {
			t.Errorf("%s was changed: %q", name, files)
		}
	}
	dir := t.TempDir()
	if code, _, errs := runSim(t, file, "--out", dir); code != 0 {
		t.Fatal(errs)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, file, "--out", dir, "--seed", "9"); code != exitFailure || !strings.Contains(errs, "another scenario, seed") {
		t.Errorf("status %d, %s", code, errs)
	}
	if code, _, errs := runSim(t, file, "--out", dir, "--seeds", "1-2"); code != exitFailure || !strings.Contains(errs, "has the result of one run") {
		t.Errorf("status %d, %s", code, errs)
	}
	if code, _, errs := runSim(t, file, "--out", dir); code != 0 || filesOf(t, dir)["notes.txt"] != "mine" {
		t.Errorf("status %d, %s", code, errs)
	}
}

// What cannot be written is an error that names the file.
func TestSimOutErrors(t *testing.T) {
	t.Parallel()
	file := tinyFile(t)
	dir := t.TempDir()
	if code, _, errs := runSim(t, file, "--out", file); code != exitFailure || !strings.Contains(errs, "--out: ") || !strings.Contains(errs, "tiny.toml") {
		t.Errorf("a directory that is a file: status %d, %s", code, errs)
	}
	for want, args := range map[string][]string{
		"--pcap writes into the directory of --out":            {"--pcap", "h0"},
		"--pcap: capture: \"h9\": there are 5 hosts":           {"--out", dir, "--pcap", "h9"},
		"--pcap: capture: \"s0.7\": switch 0 has 5 ports":      {"--out", dir, "--pcap", "s0.7"},
		"--pcap: capture: \"../x\" is no port":                 {"--out", dir, "--pcap", "../x"},
		"--pcap has no port":                                   {"--out", dir, "--pcap", " "},
		"--snap is 7: that is less than the headers take":      {"--out", dir, "--pcap", "h0", "--snap", "7"},
		"--snap is -1: it is 1 to 65536, or 0 for all":         {"--out", dir, "--pcap", "h0", "--snap", "-1"},
		"--snap is for --pcap":                                 {"--snap", "100"},
		"--perfetto has no file":                               {"--perfetto", ""},
		"--pcap is for one run, and there are 2":               {"--pcap", "h0", "--seeds", "1-2"},
		"--perfetto is for one run, and there are 2":           {"--perfetto", "x", "--seeds", "1-2"},
		"output.ports: \"h7\": there are 5 hosts, from 0 on":   {"--set", "output.ports=h7"},
		"no setting \"output.record\": [output] has ports, fl": {"--set", "output.record=true"},
	} {
		if code, _, errs := runSim(t, append([]string{file}, args...)...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %s; it should say %s", args, code, errs, want)
		}
	}
	if names := filesOf(t, dir); len(names) != 0 {
		t.Errorf("mistakes have left %d files", len(names))
	}
	if runtime.GOOS != "linux" {
		t.Skip("/dev/full is Linux's")
	}
	if code, _, errs := runSim(t, file, "--perfetto", "/dev/full"); code != exitFailure || !strings.Contains(errs, "--perfetto /dev/full: the file is not complete") {
		t.Errorf("a trace on a disk that is full: status %d, %s", code, errs)
	}
	full := filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, scenarioFile), []byte(tinyScenario), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", filepath.Join(full, "h0.pcapng")); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runSim(t, file, "--out", full, "--pcap", "h0"); code != exitFailure || !strings.Contains(errs, "--pcap: h0.pcapng is not complete") || !strings.Contains(out, "4 completed") {
		t.Errorf("a capture on a disk that is full: status %d, %s", code, errs)
	}
	if err := writeFile("/dev/full", func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }); err == nil || !strings.Contains(err.Error(), "/dev/full is not complete") {
		t.Errorf("a file on a disk that is full: %v", err)
	}
}

// A scenario that cannot be played leaves nothing in the directory: once it is
// put right, it is not another one.
func TestSimOutOfAMistake(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tiny.toml")
	dir := filepath.Join(t.TempDir(), "out")
	for _, text := range []string{strings.Replace(tinyScenario, "senders = 4", "senders = 9", 1), tinyScenario} {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		code, _, errs := runSim(t, file, "--out", dir, "--pcap", "h0")
		if (code == 0) != (text == tinyScenario) {
			t.Fatalf("status %d, %s", code, errs)
		}
		if code != 0 && len(filesOf(t, dir)) != 0 {
			t.Errorf("files are left: %v", filesOf(t, dir))
		}
	}
}

// Many runs have a report, those of shards, too.
func TestSimSweepReport(t *testing.T) {
	t.Parallel()
	file, dir := tinyFile(t), t.TempDir()
	args := []string{file, "--seeds", "1-6", "--set", "adapter.recovery=selective,go-back-n"}
	if code, _, errs := runSim(t, append(args, "--out", filepath.Join(dir, "all"))...); code != 0 {
		t.Fatal(errs)
	}
	all := filesOf(t, filepath.Join(dir, "all"))["report.html"]
	if strings.Count(all, "<svg") < 3 || !strings.Contains(all, "12 of 12 runs") {
		t.Errorf("%.2000s", all)
	}
	var shards []string
	for _, part := range []string{"1", "2"} {
		shards = append(shards, filepath.Join(dir, "shard-"+part))
		if code, _, errs := runSim(t, append(args, "--shard", part+"/2", "--out", shards[len(shards)-1])...); code != 0 {
			t.Fatal(errs)
		}
	}
	merged := filepath.Join(dir, "merged")
	if code, _, errs := runSim(t, slices.Concat([]string{"--merge"}, shards, []string{"--out", merged})...); code != 0 {
		t.Fatal(errs)
	}
	if got := filesOf(t, merged)["report.html"]; !strings.Contains(got, "12 of 12 runs") || strings.Count(got, "<svg") != strings.Count(all, "<svg") {
		t.Errorf("%.2000s", got)
	}
}

// dump makes a scenario of what --pcap has written, which loses and marks the
// same packets.
func TestDumpScenario(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, again := filepath.Join(dir, "first.toml"), filepath.Join(dir, "again.toml")
	told := "[[loss]]\nflow = 1\npackets = \"2 5-6\"\n\n[[mark]]\nflow = 2\npackets = \"9\"\n"
	if err := os.WriteFile(file, []byte(strings.Replace(tinyScenario, "hosts = 5", "hosts = 5\nred = { kmax = \"0B\" }", 1)+told), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, file, "--out", filepath.Join(dir, "first"), "--pcap", "h0"); code != 0 {
		t.Fatal(errs)
	}
	dump := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"dump"}, args...), streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
		return code, stdout.String(), stderr.String()
	}
	toldThere := func(text string) bool { // of flows with numbers of their own
		return strings.Count(text, "[[loss]]")+strings.Count(text, "[[mark]]") == 2 && strings.Contains(text, "packets = \"2 5-6\"") && strings.Contains(text, "packets = \"9\"") && strings.Contains(text, "rate = \"100Gb/s\"")
	}
	capture := filepath.Join(dir, "first", "h0.pcapng")
	code, out, errs := dump(capture, "--scenario", again)
	text, err := os.ReadFile(again)
	if code != 0 || out != "" || err != nil || !toldThere(string(text)) {
		t.Fatalf("status %d, %s%s\n%s", code, out, errs, text)
	}
	if code, out, errs := runSim(t, again); code != 0 || !strings.Contains(out, "3 dropped, 3 cable_loss") || !strings.Contains(out, "4 completed") {
		t.Errorf("status %d\n%s%s", code, out, errs)
	}
	if _, out, _ := dump(capture, "--scenario", "-"); !toldThere(out) {
		t.Errorf("- prints\n%s", out)
	}
	for want, args := range map[string][]string{
		"there is nothing to play":  {capture, "--scenario", again, "-f", "opcode=ACKNOWLEDGE"},
		"no such file or directory": {capture, "--scenario", filepath.Join(dir, "no", "x.toml")},
	} {
		if code, _, errs := dump(args...); code != exitFailure || !strings.Contains(errs, "--scenario: ") || !strings.Contains(errs, want) {
			t.Errorf("%q: status %d, %s; it should say %s", args, code, errs, want)
		}
	}
}
