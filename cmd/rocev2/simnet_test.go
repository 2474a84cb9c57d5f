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
	if code, _, errs := runSim(t, file); code == exitOK || !strings.Contains(errs, "line 6: network.file, five.txt: line 4: rate") {
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
