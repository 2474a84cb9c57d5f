package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/bench/internal/report"
)

// A run without a cell is an error, and leaves no report that has nothing to
// say.
func TestNoCells(t *testing.T) {
	t.Parallel()
	f := &flags{match: "^no-such-cell$", out: filepath.Join(t.TempDir(), "out")}
	err := run(t.Context(), f, regexp.MustCompile(f.match))
	if err == nil || !strings.Contains(err.Error(), `no name of a cell matches "^no-such-cell$"`) {
		t.Errorf("error %v", err)
	}
	if err := finish(f, &report.Report{}); err == nil || !strings.Contains(err.Error(), "nothing was measured") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(f.out); !os.IsNotExist(err) {
		t.Errorf("the directory of the report: %v", err)
	}
}
