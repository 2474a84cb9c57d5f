package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/observe/conformance"
)

// TestConformanceThroughLibibverbs: the target in C, which is for adapters, has
// an adapter of this software below it, and all rules hold.
func TestConformanceThroughLibibverbs(t *testing.T) {
	t.Parallel()
	p := buildTool(t)
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skipf("the headers of libibverbs are not here (libibverbs-dev): %v", err)
	}
	program := filepath.Join(p.dir, "target")
	if err := os.WriteFile(program+".c", []byte(conformance.Helper), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-O2", "-o", program, program+".c", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	addr, port := freeAddress(), freePort(t)
	cmd := p.command("-d", addr, "--", program, "-p", port, "-b", addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it was ended
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, "control connections on port "+port) {
		t.Fatalf("the target says %q, %v", line, err)
	}
	r := invoke(t.Context(), "conformance", "--json", "--kind", "none", "--timeout", "20s", "--quiet", "20ms", "-d", freeAddress(), "-p", port, addr)
	var report struct {
		Results []struct{ ID, Verdict, Why, Expected, Came string }
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v: %s", err, r.err)
	}
	for _, res := range report.Results {
		if res.Verdict != "pass" {
			t.Errorf("%s: %s %s; expected %s, came %s", res.ID, res.Verdict, res.Why, res.Expected, res.Came)
		}
	}
}
