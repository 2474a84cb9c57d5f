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
	dir  string // of the module, from the root of the repository
	args []string
	skip []skip
}

// skip is tests that cannot pass, or take too long, by an expression, and why.
type skip struct{ tests, why string }

// test runs tests as programs of another system.
func (f *foreigner) test(t *testing.T, r run) {
	t.Helper()
	args := []string{"test", "-count=1", "-timeout", "9m", "-exec", f.by}
	var names []string
	for _, s := range r.skip {
		names = append(names, s.tests)
		t.Logf("left out: %s: %s", s.tests, s.why)
	}
	if len(names) > 0 {
		args = append(args, "-skip", strings.Join(names, "|"))
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, r.args...)...)
	cmd.Dir = filepath.Join("../..", r.dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+f.os, "GOARCH="+f.processor)
	cmd.Env = append(cmd.Env, f.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: go %s: %v\n%s", f.os, f.processor, strings.Join(cmd.Args[1:], " "), err, out)
		return
	}
	if n := strings.Count("\n"+string(out), "\nok "); n == 0 {
		t.Errorf("nothing ran: %s", out)
	}
}
