package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestConformance tests this software over loopback, as users do.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := serve(t, "conformance --serve")
	dir := t.TempDir()
	r := invoke(t.Context(), "conformance", "-d", freeAddress(), "-p", s.port, "-o", dir, "--timeout", "20s", "--quiet", "20ms",
		"--run", "send/*,read/*,psn/*", "--run", "wire/icrc*", "--run", "requester/read", s.addr)
	if r.code != exitOK || !strings.Contains(r.out, "pass            psn/wrap ") || !strings.Contains(r.out, " 0 fail, 0 deviations known, 0 not tested") {
		t.Errorf("exit status %d: %s%s", r.code, r.out, r.err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil || !strings.Contains(string(report), "| `psn/wrap` |") {
		t.Errorf("%v: %s", err, report)
	}
	r = invoke(t.Context(), "conformance", "-d", freeAddress(), "-p", s.port, "--json", "--run", "send/only", s.addr)
	var got struct {
		Target  struct{ Kind string }
		Results []struct{ ID, Verdict string }
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Target.Kind != "rocev2" || len(got.Results) != 1 || got.Results[0].Verdict != "pass" {
		t.Errorf("%v: %s", err, r.out)
	}
	s.cancel()
	if r := s.result(); r.code != exitFailure || !strings.Contains(r.err, "interrupted") {
		t.Errorf("the target: exit status %d, %s", r.code, r.err)
	}
}

// TestConformanceInterrupted: what was tested before an interruption is kept.
func TestConformanceInterrupted(t *testing.T) {
	t.Parallel()
	s := serve(t, "conformance --serve")
	dir := filepath.Join(t.TempDir(), "report")
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, said strings.Builder
	code := run(ctx, []string{"conformance", "-d", freeAddress(), "-p", s.port, "-o", dir, "--timeout", "20s", s.addr}, streams{
		out: writerFunc(func(b []byte) (int, error) {
			if strings.HasPrefix(string(b), "pass ") {
				interrupt() // after the first rule
			}
			return out.Write(b)
		}),
		err: &said,
	})
	if code != exitFailure || !strings.Contains(out.String(), "1 pass, 0 fail, 0 deviations known") || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("exit status %d: %s%s", code, out.String(), said.String())
	}
	for _, name := range []string{"report.html", "report.md", "report.json"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), "interrupted") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}

// writerFunc is a function that is written to.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestConformanceWords: what a user does wrong is said in words, and the lists
// need no peer.
func TestConformanceWords(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"conformance":                           "name a host",
		"conformance --list --serve":            "name a host",
		"conformance --run nothing/* 127.0.0.1": `no rule fits "nothing/*"`,
		"conformance --run [ 127.0.0.1":         "pattern",
		"conformance --timeout 0s 127.0.0.1":    "--timeout",
		"conformance -p 0 127.0.0.1":            "port",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: exit status %d: %s", args, r.code, r.err)
		}
	}
	if r := invoke(t.Context(), "conformance", "-d", freeAddress(), "-p", freePort(t), freeAddress()); r.code != exitFailure || !strings.Contains(r.err, "reach the target") || !strings.Contains(r.err, "--serve") {
		t.Errorf("without a target: exit status %d: %s", r.code, r.err)
	}
	r := invoke(t.Context(), "conformance", "--list", "--run", "key/*")
	if r.code != exitOK || strings.Count(r.out, "\n  key/") < 5 || strings.Contains(r.out, "read/only") {
		t.Errorf("exit status %d: %s", r.code, r.out)
	}
}

// TestConformanceHelper: the target for libibverbs compiles without a warning.
func TestConformanceHelper(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "conformance", "--helper")
	if r.code != exitOK {
		t.Fatalf("exit status %d: %s", r.code, r.err)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler: install gcc")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skipf("the headers of libibverbs are not here (libibverbs-dev): %v", err)
	}
	file := filepath.Join(t.TempDir(), "target.c")
	if err := os.WriteFile(file, []byte(r.out), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-O2", "-Wall", "-Wextra", "-Werror", "-c", "-o", file+".o", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
