package foreign

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/debian"
)

// need skips the test where a program is missing and cannot be installed. It
// returns the path of the first one.
func need(t *testing.T, needs ...debian.Need) string {
	t.Helper()
	if os.Getenv("ROCEV2_E2E") == "" {
		t.Skip("programs of other systems and processors run with ROCEV2_E2E=1 (make test-foreign)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := debian.Install(ctx, filepath.Join(os.TempDir(), "rocev2-packages"), needs, t.Logf)
	var missing *debian.Unavailable
	if errors.As(err, &missing) {
		t.Skip(missing.Reason)
	} else if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath(needs[0].File)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// foreigner is a system and a processor whose programs run here by another
// program.
type foreigner struct {
	os, processor string
	by            string // what runs them: a command for go test -exec
	env           []string
}

// run is a call of go test.
type run struct {
	dir      string   // of the module, from the root of the repository
	tags     string   // build tags
	packages []string // patterns, relative to dir
	only     []string // tests; none: all
	sub      string   // with only: an expression for their subtests
	flags    []string
	skip     []skip
}

// skip is tests that cannot pass, or take too long, and why. One that has a
// slash is a subtest.
type skip struct {
	tests []string
	why   string
}

// args returns the arguments of go. What vet looks at in all dependencies takes
// as long as it takes to compile them, and make vet does so.
func (r *run) args(by string) []string {
	args := []string{"test", "-vet=off", "-count=1", "-timeout", "9m", "-exec", by, "-tags", r.tags}
	var names []string
	for _, s := range r.skip {
		for _, test := range s.tests {
			names = append(names, exactly(test))
		}
	}
	if len(names) > 0 {
		args = append(args, "-skip", strings.Join(names, "|"))
	}
	if len(r.only) > 0 {
		run := "^(" + strings.Join(r.only, "|") + ")$"
		if r.sub != "" {
			run += "/" + r.sub
		}
		args = append(args, "-run", run)
	}
	return append(append(args, r.flags...), r.packages...)
}

// exactly returns the expression of one test, or of one subtest.
func exactly(test string) string {
	return "^" + strings.Join(strings.Split(test, "/"), "$/^") + "$"
}

// test runs tests as programs of another system.
func (f *foreigner) test(t *testing.T, r run) {
	t.Helper()
	for _, s := range r.skip {
		t.Logf("left out: %s: %s", strings.Join(s.tests, ", "), s.why)
	}
	cmd := exec.CommandContext(t.Context(), "go", r.args(f.by)...)
	cmd.Dir = filepath.Join("../..", r.dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+f.os, "GOARCH="+f.processor)
	cmd.Env = append(cmd.Env, f.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: go %s: %v\n%s", f.os, f.processor, strings.Join(cmd.Args[1:], " "), err, out)
		return
	}
	if why := nothingRan(string(out), len(r.only) > 0); why != "" {
		t.Errorf("%s %s: go %s: %s:\n%s", f.os, f.processor, strings.Join(cmd.Args[1:], " "), why, out)
	}
}

// nothingRan says what is wrong with what go test says that has passed: no
// package has run; or some has no test of those that were chosen, which go test
// does not count as a failure.
func nothingRan(out string, chosen bool) string {
	ok := 0
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "ok ") {
			continue
		}
		ok++
		if chosen && strings.Contains(line, "[no tests to run]") {
			return "no test matches in " + strings.Fields(line)[1]
		}
	}
	if ok == 0 {
		return "no package has tests"
	}
	return ""
}
