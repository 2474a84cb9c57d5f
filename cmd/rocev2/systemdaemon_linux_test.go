package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A user who may not enter the directory of the system's daemon learns how to
// join its group; others learn nothing of it. (The packages' test has a real
// stranger.)
func TestClosedDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, open := range []string{dir, filepath.Join(dir, "none")} {
		if got := closedDaemon(open); got != "" {
			t.Errorf("%s can be entered, or is not there, and the user is told %q", open, got)
		}
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o000); err != nil {
		t.Fatal(err)
	}
	got := closedDaemon(closed)
	if os.Geteuid() == 0 {
		t.Skip("root may enter every directory")
	}
	if !strings.Contains(got, "usermod -aG") {
		t.Errorf("a user outside the group is told %q", got)
	}
}
