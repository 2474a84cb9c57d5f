//go:build unix

// Command steady runs test binaries again and again where they have it hard: a
// failure that comes once in a hundred runs on an idle machine comes here.
//
//	go run ./internal/steady [-n 10] [-load 16] [-seed 1] [-run EXPRESSION]
//		[-exec PROGRAM] [-ports] [-C DIRECTORY] [packages]
//
// Beside the tests some threads are busy all the time. With -ports the ports
// of RoCEv2 and of the field's tools are taken, too. So the tests need a
// network of their own (-exec), and where others work steady needs one itself.
// Each round has another order of the tests, and every second round one
// processor. From time to time the processes of the test stop for a moment:
// then the clock jumps for them. A seed says all of this. What fails is
// reported with its seed, which repeats the round.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

type options struct {
	rounds, load int
	seed         uint64
	timeout      time.Duration
	run, exec    string
	dir          string // of the module, if not this one
	ports        bool
	packages     []string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "n", 10, "`rounds` of each package")
	flag.IntVar(&o.load, "load", 16, "threads that are busy beside the tests")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first round; each has the next one")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long a round of a package may take")
	flag.StringVar(&o.run, "run", "", "only tests that match the `expression`, as go test -run")
	flag.StringVar(&o.exec, "exec", "", "run test binaries by this `program`, as go test -exec")
	flag.StringVar(&o.dir, "C", "", "the packages are those of the module in this `directory`")
	flag.BoolVar(&o.ports, "ports", false, "take the ports of RoCEv2 and of the field's tools in this network namespace")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := steady(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "steady:", err)
		os.Exit(1)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// steady runs all rounds of all packages and returns how many have failed.
func steady(ctx context.Context, o options, out io.Writer) (failed int, err error) {
	packages, err := testsOf(ctx, o.dir, o.packages)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "steady")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if o.ports {
		taken, refused := takePorts()
		defer taken.release()
		if len(refused) > 0 {
			fmt.Fprintf(out, "taken by others already: %s\n", strings.Join(refused, ", "))
		}
	}
	defer keepBusy(o.load)()
	ran := 0
	var failures []string
	for _, p := range packages {
		p.binary = filepath.Join(dir, "tests")
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.binary, p.path)
		build.Dir = o.dir
		if text, err := build.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build the tests of %s: %w\n%s", p.path, err, text)
		}
		for i := range o.rounds {
			r := newRound(o.seed + uint64(i))
			text, err := r.play(ctx, o, p)
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			if ran++; err == nil {
				continue
			}
			again := r.command(o, p)
			fmt.Fprintf(out, "%sFAIL %s, %v: %v; again: %s\n", text, p.path, r, err, again)
			failures = append(failures, again)
		}
		fmt.Fprintf(out, "%-40s %d rounds\n", p.path, o.rounds)
	}
	fmt.Fprintf(out, "%d rounds of %d packages, %d failed\n", ran, len(packages), len(failures))
	for _, f := range failures {
		fmt.Fprintf(out, "  %s\n", f)
	}
	return len(failures), nil
}

// tests are those of a package.
type tests struct {
	path, dir, binary string
}

// testsOf returns the packages that have tests.
func testsOf(ctx context.Context, module string, patterns []string) ([]tests, error) {
	const form = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", form}, patterns...)...)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []tests
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if dir != "" {
			all = append(all, tests{path: path, dir: dir})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no package of %s has tests", strings.Join(patterns, " "))
	}
	return all, nil
}

// keepBusy keeps n threads busy until it is told to stop.
func keepBusy(n int) (stop func()) {
	before := runtime.GOMAXPROCS(runtime.NumCPU() + n)
	var done atomic.Bool
	for range n {
		go func() {
			for !done.Load() {
			}
		}()
	}
	return func() {
		done.Store(true)
		runtime.GOMAXPROCS(before)
	}
}
