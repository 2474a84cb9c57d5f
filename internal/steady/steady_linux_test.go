package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testnet"
)

// module is a package whose tests fail with one processor. One of them waits
// until its process has been stopped.
const module = `package module

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

func TestStops(t *testing.T) {
	went := make(chan os.Signal, 1)
	signal.Notify(went, syscall.SIGCONT)
	<-went
}

func TestProcessors(t *testing.T) {
	if os.Getenv("GOMAXPROCS") == "1" {
		t.Error("one processor")
	}
}
`

func TestSteady(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a package and runs it four times: run without -short")
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"go.mod": "module example.net/module\n\ngo 1.26\n", "module_test.go": module} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	var out strings.Builder
	failed, err := steady(t.Context(), options{rounds: 4, load: 1, seed: 7, timeout: 10 * time.Minute, packages: []string{"./..."}}, &out)
	if err != nil || failed != 2 {
		t.Fatalf("%d rounds failed, want the two with one processor: %v\n%s", failed, err, out.String())
	}
	for _, want := range []string{
		"one processor", "FAIL example.net/module, seed 7, GOMAXPROCS=1: exit status 1; again: go run ./internal/steady -n 1 -seed 7 -load 1 example.net/module\n",
		"seed 9, GOMAXPROCS=1", "4 rounds of 1 packages, 2 failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "seed 8") {
		t.Errorf("it reports a round that has passed:\n%s", out.String())
	}
	_, err = steady(t.Context(), options{rounds: 1, packages: []string{"./nosuch"}}, &out)
	if err == nil {
		t.Error("a package that is not there passes")
	}
}

// What does not end is ended, and its seed is reported.
func TestNoEnd(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "tests")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho begun\nwhile :; do :; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := newRound(1).play(t.Context(), options{timeout: -time.Minute + time.Second}, tests{binary: script, dir: "."})
	if err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("%v: %s", err, text)
	}
}

// A seed says the same each time.
func TestSeeds(t *testing.T) {
	t.Parallel()
	long := 0
	for seed := range uint64(50) {
		a, b := newRound(seed), newRound(seed)
		for range 20 {
			after, pause := a.pause()
			if after2, pause2 := b.pause(); after != after2 || pause != pause2 || a.processors != b.processors {
				t.Fatalf("seed %d: %v and %v, then %v and %v", seed, after, pause, after2, pause2)
			}
			if pause < time.Millisecond || pause > time.Second || after < time.Millisecond || after > time.Second {
				t.Errorf("seed %d: a pause of %v after %v", seed, pause, after)
			}
			if pause > 200*time.Millisecond {
				long++
			}
		}
	}
	if long == 0 || long > 200 {
		t.Errorf("%d of 1000 pauses are long", long)
	}
	if got := newRound(3).command(options{load: 2, run: "^A$", exec: "x", dir: "e2e"}, tests{path: "./p"}); got != "go run ./internal/steady -n 1 -seed 3 -load 2 -run '^A$' -exec 'x' -C e2e ./p" {
		t.Errorf("%s", got)
	}
}

// All ports are taken until they are released.
func TestPorts(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	first, refused := takePorts()
	second, taken := takePorts()
	if len(first) != len(ports) || len(refused) != 0 || len(second) != 0 || len(taken) != len(ports) {
		t.Errorf("took %d, could not take %v; the second time %d, %v", len(first), refused, len(second), taken)
	}
	first.release()
	if third, refused := takePorts(); len(refused) != 0 {
		t.Errorf("%v were not released", refused)
	} else {
		third.release()
	}
}
