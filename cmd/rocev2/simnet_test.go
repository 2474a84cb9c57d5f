package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A network is read from a file beside the scenario, and what is printed has
// it. What is wrong with the file is said, with its line.
func TestSimNetworkOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.Replace(tinyScenario, "topology = \"star\"\nhosts = 5", "topology = \"file\"\nfile = \"five.txt\"", 1)
	const five = "6 1 5\n0\n1 0 100Gbps 1us 0\n2 0 100Gbps 1us 0\n3 0 100Gbps 1us 0\n4 0 100Gbps 1us 0\n5 0 100Gbps 1us 0\n"
	file, net := filepath.Join(dir, "mine.toml"), filepath.Join(dir, "five.txt")
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.WriteFile(net, []byte(five), 0o600)); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runSim(t, file); code != exitOK || !strings.Contains(out, "tiny: 5 hosts") || !strings.Contains(out, "4 completed") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
	if err := os.WriteFile(net, []byte(strings.Replace(five, "2 0 100Gbps", "2 0 quick", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runSim(t, file); code == exitOK || !strings.Contains(errs, "line 5: network.file, five.txt: line 4: rate") {
		t.Errorf("exit status %d\n%s", code, errs)
	}
	if err := os.WriteFile(net, []byte(five), 0o600); err != nil {
		t.Fatal(err)
	}
	code, whole, _ := runSim(t, file, "--print")
	if err := errors.Join(os.WriteFile(file, []byte(whole), 0o600), os.Remove(net)); code != exitOK || err != nil {
		t.Fatal(code, err)
	}
	if code, out, errs := runSim(t, file, "--cores", "2"); code != exitOK || !strings.Contains(out, "4 completed") {
		t.Errorf("exit status %d\n%s%s", code, out, errs)
	}
}

// Files that begin with a byte order mark are read as those without, also where
// the scenario is changed. Mistakes have the lines of the file, which has no
// others in it.
func TestSimFilesWithAMark(t *testing.T) {
	t.Parallel()
	const mark = "\xef\xbb\xbf"
	dir := t.TempDir()
	file := filepath.Join(dir, "mine.toml")
	const text = mark + "[network]\r\ntopology = \"file\"\r\nfile = \"two.txt\"\r\n[[traffic]]\r\nkind = \"list\"\r\nfile = \"flows.csv\"\r\n[adapter]\r\nmtu = 1024\r\n"
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "two.txt"), []byte(mark+"3 1 2\r\n2\r\n0 2 100Gbps 1us 0\r\n1 2 100Gbps 1us 0\r\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "flows.csv"), []byte(mark+"from,to,bytes\r\n0,1,5\r\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	for _, args := range [][]string{{file}, {file, "--set", "name=x"}, {file, "--seed", "3", "--out", out}, {filepath.Join(out, "scenario.toml")}} {
		if code, got, errs := runSim(t, args...); code != exitOK || !strings.Contains(got, "1 completed") {
			t.Errorf("%v: exit status %d\n%s%s", args, code, got, errs)
		}
	}
	for set, want := range map[string]string{
		"adapter.mtu=1024":  "line 8: adapter.timeout is 99",
		"adapter.dscp=1024": "line 8: adapter.timeout is 99",
	} {
		if err := os.WriteFile(file, []byte(strings.Replace(text, "mtu = 1024", "timeout = 99", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := runSim(t, file, "--set", set); code == exitOK || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, %s; want %q", set, code, errs, want)
		}
	}
}
