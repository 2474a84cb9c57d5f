//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/e2e/guest"
)

// conformanceEnv is the directory for the reports of TestKernelConformance,
// that of the documentation.
const conformanceEnv = "ROCEV2_E2E_CONFORMANCE"

// deviating are rules that the kernels are known to break: the conformance test
// must find out by itself. Of other rules it must find nothing.
var deviating = map[string][]string{
	"": { // both
		"duplicate/atomic-forgotten", "duplicate/read-twice", "duplicate/read-zero", "length/write-less", "psn/gap-again", "psn/stale", "refused/again", "refused/again-read", "requester/ack-future", "requester/read-opcode",
		"requester/read-plain-ack", "requester/read-short", "requester/read-syndrome", "retry/seven", "send/invalidate-refused", "send/too-long", "uc/lost-middle", "uc/write-cut",
	},
	"6.1":  {"length/beyond-2g", "length/first-whole", "length/last-empty", "length/middle-short", "length/only-long", "ud/too-long"},
	"6.12": {"duplicate/flush", "duplicate/read-after-empty", "flush/global"},
}

// bareRules is how many rules need a connection alone.
const bareRules = 32

// TestKernelConformance tests the kernels with rocev2 conformance, whose target
// for libibverbs runs in the guests, and then with rping there, unmodified.
func TestKernelConformance(t *testing.T) {
	lab := startLab(t)
	bin := buildTool(t, lab.Host)
	target := buildTarget(t, lab.Host, bin)
	for _, g := range lab.Guests {
		t.Run(g.Line, func(t *testing.T) { testKernelRules(t, lab.Host, g, bin, target) })
		t.Run(g.Line+"/rping", func(t *testing.T) { testRpingRules(t, lab.Host, g, bin) })
	}
}

// buildTarget compiles the program in C that rocev2 prints, or skips the test.
func buildTarget(t *testing.T, h *guest.Host, bin string) []byte {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler: install gcc")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skipf("the headers of libibverbs are not here (libibverbs-dev): %v", err)
	}
	res, err := guest.Run(t.Context(), h.Unprivileged(), bin, "conformance", "--helper")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(file+".c", []byte(res.Stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-O2", "-o", file, file+".c", "-libverbs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testKernelRules(t *testing.T, h *guest.Host, g *guest.Guest, bin string, target []byte) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	in := guest.Stdio{In: bytes.NewReader(target), Out: io.Discard, Err: io.Discard}
	if code, err := g.Attach(ctx, in, "sh", "-c", "cat > /tmp/target && chmod +x /tmp/target"); err != nil || code != 0 {
		t.Fatalf("copy the target: exit status %d, %v", code, err)
	}
	const port = 18520
	p, err := g.Start(ctx, "/tmp/target", "-d", "rxe0", "-g", "1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Signal(syscall.SIGKILL) }()
	if err := g.WaitListen(ctx, port); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filesOf(bin), "linux-"+g.Line) // an ordinary user writes there
	res, err := guest.Run(ctx, h.Unprivileged(), bin, "conformance", "--json", "--timeout", "5s", "--quiet", "500ms", "-o", dir, "-d", g.Host4.String(), g.Addr4.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, lastLines(g))
	}
	report := parseReport(t, res.Stdout)
	want, found := slices.Concat(deviating[""], deviating[g.Line]), []string{}
	for _, r := range report {
		lacks := g.Line == "6.1" && strings.Contains(r.Why, "does not offer")
		switch {
		case r.Verdict == "deviation known":
			found = append(found, r.ID)
		case r.Verdict != "pass" && !lacks:
			t.Errorf("%s: %s %s; expected %s, came %s", r.ID, r.Verdict, r.Why, r.Expected, r.Came)
		}
	}
	slices.Sort(want)
	slices.Sort(found)
	if !slices.Equal(found, want) {
		t.Errorf("deviations\n%v, expected\n%v", found, want)
	}
	keepReport(t, dir, g.Line)
}

// ruleResult is what a report says of a rule.
type ruleResult struct{ ID, Verdict, Expected, Came, Why string }

func parseReport(t *testing.T, text string) []ruleResult {
	t.Helper()
	var report struct{ Results []ruleResult }
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	return report.Results
}

// testRpingRules has rping as the peer, which knows nothing of the test.
func testRpingRules(t *testing.T, h *guest.Host, g *guest.Guest, bin string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	p, err := g.Start(ctx, "rping", "-s", "-P")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Signal(syscall.SIGKILL) }()
	const port = 7174
	if err := (meeting{space: "TCP"}).inGuest(ctx, g, port); err != nil {
		t.Fatal(err)
	}
	res, err := guest.Run(ctx, h.Unprivileged(), bin, "conformance", "--json", "--cm", strconv.Itoa(port), "--kind", "linux-rxe",
		"--timeout", "5s", "--quiet", "500ms", "-d", g.Host4.String(), g.Addr4.String())
	if err != nil {
		t.Fatal(err)
	}
	known, tested := slices.Concat(deviating[""], deviating[g.Line]), 0
	for _, r := range parseReport(t, res.Stdout) {
		switch {
		case r.Verdict == "not tested":
			continue
		case r.Verdict != "pass" && !slices.Contains(known, r.ID):
			t.Errorf("%s: %s; expected %s, came %s", r.ID, r.Verdict, r.Expected, r.Came)
		}
		tested++
	}
	if tested != bareRules {
		t.Errorf("%d rules are tested, expected %d", tested, bareRules)
	}
}

// keepReport copies a report and its captures to where the documentation has
// them, if that is asked for.
func keepReport(t *testing.T, dir, line string) {
	t.Helper()
	to := os.Getenv(conformanceEnv)
	if to == "" || t.Failed() {
		return
	}
	to = filepath.Join(to, "linux-"+line)
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(to, "report.json")) // the other has it all
}
