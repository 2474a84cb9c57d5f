package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// isolated runs a shell command by the program, and returns what it prints.
func isolated(t *testing.T, env, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), build(t), "sh", "-c", script)
	cmd.Env = append(os.Environ(), env)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// build builds the program, or skips the test where no namespace can be had.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "isolated")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), bin).CombinedOutput(); err != nil {
		t.Skipf("%s", out)
	}
	return bin
}

// The program has another network than this test: the same address and port are
// free there. It is the same user, in the same directory.
func TestAnotherNetwork(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.7:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := isolated(t, "ISOLATED_LISTEN="+l.Addr().String(), os.Args[0]+" -test.v -test.run=^TestListen$")
	if err != nil || !strings.Contains(out, "--- PASS: TestListen") {
		t.Errorf("%v\n%s", err, out)
	}
	here, err := exec.CommandContext(t.Context(), "sh", "-c", "id -u; id -g; pwd").Output()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := isolated(t, "A=1", "id -u; id -g; pwd"); err != nil || out != string(here) {
		t.Errorf("%v; inside %q, outside %q", err, out, here)
	}
}

// TestListen is what TestAnotherNetwork runs in the namespace.
func TestListen(t *testing.T) {
	addr := os.Getenv("ISOLATED_LISTEN")
	if addr == "" {
		t.Skip("TestAnotherNetwork runs it in a namespace")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// What the program returns, and which signal ends it, the caller sees; signals
// reach it. go test asks for the goroutines by SIGQUIT.
func TestStatusAndSignals(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{
		"exit 0":        0,
		"exit 3":        3,
		"kill -KILL $$": 137,
		"trap 'exit 5' QUIT; kill -QUIT $PPID; while :; do :; done": 5,
	} {
		out, err := isolated(t, "A=1", script)
		got := 0
		if exit, ok := err.(*exec.ExitError); ok {
			got = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: status %d, want %d: %s", script, got, want, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), build(t), "/nosuch")
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 127 || !strings.Contains(string(out), "isolated: /nosuch: ") {
		t.Errorf("a program that is not there: %v\n%s", err, out)
	}
}
