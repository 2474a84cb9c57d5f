// Command testreport runs go test and reports the result of every package, the
// whole output of what failed, and every skipped test with its reason.
//
//	go run ./internal/testreport [-env NAME=VALUE]... [-C DIRECTORY]...
//		-- [go test arguments]
//
// With -C it runs go test in each of the directories, one after the other: a
// module of its own has its packages in no other module's ./... A directory may
// be followed by packages, which are tested in their order:
//
//	go run ./internal/testreport -C '. ./qp ./...' -C 'e2e ./...' -- -race
//
// It shows the lines that begin with "report: " even of tests that pass: tables
// for the reader of the run.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func main() {
	var env, dirs list
	flag.Var(&env, "env", "NAME=VALUE for the tests (may be repeated)")
	flag.Var(&dirs, "C", "a `directory` in which go test runs, and perhaps packages there (may be repeated)")
	flag.Parse()
	if len(dirs) == 0 {
		dirs = list{"."}
	}
	code, err := run(env, dirs, flag.Args(), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run returns the exit status of the first go test that fails. The others run
// all the same.
func run(env, dirs, args []string, out io.Writer) (code int, err error) {
	r := newReport(out)
	for _, dir := range dirs {
		words := strings.Fields(dir)
		status, failed := r.test(words[0], env, slices.Concat(args, words[1:]))
		code, err = cmp.Or(code, status), errors.Join(err, failed)
	}
	r.summary()
	return code, err
}

// test runs go test in a directory.
func (r *report) test(dir string, env, args []string) (int, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	readErr := r.read(stdout)
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return 1, readErr
	case errors.As(waitErr, &exit):
		return exit.ExitCode(), nil
	}
	return 0, waitErr
}

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

type report struct {
	out                     io.Writer
	output                  map[string][]string // by package and test, while it runs
	late                    map[string][]string // by package: what came after the result of a test
	passed, failed, skipped int
	skips                   []string
	failures                []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[string][]string{}, late: map[string][]string{}}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.handle(&e)
	}
	return lines.Err()
}

func (r *report) handle(e *event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		if _, line, ok := strings.Cut(e.Output, "report: "); ok {
			fmt.Fprint(r.out, line)
		}
		r.output[key] = append(r.output[key], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "fail", "skip":
		r.finish(e, r.output[key])
		delete(r.output, key)
	}
}

func (r *report) finish(e *event, output []string) {
	if e.Test == "" {
		r.finishPackage(e, output)
		return
	}
	if e.Action != "fail" {
		r.late[e.Package] = append(r.late[e.Package], behindResult(output)...)
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", short(e.Package), e.Test, reason(output)))
	case "fail":
		r.failed++
		r.failures = append(r.failures, short(e.Package)+" "+e.Test)
		fmt.Fprint(r.out, strings.Join(output, ""))
	}
}

func (r *report) finishPackage(e *event, output []string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %-28s %.1fs\n", short(e.Package), e.Elapsed)
	case "fail":
		fmt.Fprint(r.out, strings.Join(r.late[e.Package], ""))
		r.unfinished(e.Package)
		fmt.Fprint(r.out, strings.Join(output, ""))
		fmt.Fprintf(r.out, "FAIL  %-28s %.1fs\n", short(e.Package), e.Elapsed)
	}
}

// behindResult returns what was said after the result of a test: go test gives
// it to that test, also what a process says that panics.
func behindResult(output []string) []string {
	for i, l := range output {
		if strings.HasPrefix(strings.TrimSpace(l), "--- ") {
			return output[i+1:]
		}
	}
	return nil
}

// unfinished reports the tests of a package that have no result, because the
// process ended with them: what it said last is in the output of one of them.
func (r *report) unfinished(pkg string) {
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		test, ok := strings.CutPrefix(key, pkg+" ")
		if !ok || test == "" {
			continue
		}
		r.failed++
		r.failures = append(r.failures, short(pkg)+" "+test+" (did not end)")
		fmt.Fprint(r.out, strings.Join(r.output[key], ""))
		delete(r.output, key)
	}
}

func (r *report) summary() {
	if len(r.skips) > 0 {
		fmt.Fprintf(r.out, "\nSkipped, and why:\n  %s\n", strings.Join(r.skips, "\n  "))
	}
	if len(r.failures) > 0 {
		fmt.Fprintf(r.out, "\nFailed:\n  %s\n", strings.Join(r.failures, "\n  "))
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

func short(pkg string) string {
	return strings.TrimPrefix(pkg, "github.com/gosoftroce/rocev2/")
}

// reason is what a skipped test printed, without the lines of the test runner.
func reason(output []string) string {
	var kept []string
	for _, l := range output {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "===") || strings.HasPrefix(l, "--- ") {
			continue
		}
		kept = append(kept, l)
	}
	return strings.Join(kept, " ")
}
