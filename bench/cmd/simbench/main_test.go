package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/bench/internal/sims"
)

// A peer that cannot be fetched is an error that says which, from where, and
// how to go on without it.
func TestMissingPeer(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	gone := filepath.Join(work, "gone")
	f := &flags{work: work, tool: "rocev2", htsim: sims.HTSim(), hpcc: sims.HPCC(), repeat: 1, limit: time.Minute, match: regexp.MustCompile("^flow$")}
	f.htsim.From = gone
	err := run(t.Context(), f)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"htsim cannot be cloned from", gone, "-htsim none"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	// Without it nothing is left to play.
	f.htsim.From = none
	if err := run(t.Context(), f); err == nil || !strings.Contains(err.Error(), "nothing was played") {
		t.Errorf("error %v", err)
	}
	// What no workload of the expression needs is not fetched.
	f.htsim.From, f.match = gone, regexp.MustCompile("^hadoop-dcqcn$")
	f.python = filepath.Join(work, "no-python")
	if err := run(t.Context(), f); err == nil || !strings.Contains(err.Error(), "needs Python 2") {
		t.Errorf("error %v", err)
	}
}
