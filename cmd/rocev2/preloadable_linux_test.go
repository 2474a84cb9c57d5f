package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program that becomes another user loads no library, whichever user runs it.
// One that stays the user who runs it does.
func TestSetuidPrograms(t *testing.T) {
	t.Parallel()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const other = 64001
	for _, c := range []struct {
		why      string
		uid, gid int
		mode     os.FileMode
		want     string // a part of the error; "": none
	}{
		{"setuid to oneself", os.Getuid(), os.Getgid(), 0o755 | os.ModeSetuid, ""},
		{"setgid to one's group", os.Getuid(), os.Getgid(), 0o755 | os.ModeSetgid, ""},
		{"of another user", other, other, 0o755, ""},
		{"setuid to another user", other, os.Getgid(), 0o755 | os.ModeSetuid, "setuid to user 64001"},
		{"setgid to another group", os.Getuid(), other, 0o755 | os.ModeSetgid, "setgid to group 64001"},
		{"a mandatory lock", os.Getuid(), other, 0o745 | os.ModeSetgid, ""},
	} {
		if os.Getuid() != 0 && (c.uid == other || c.gid == other) {
			t.Logf("%s: only root makes such a program", c.why)
			continue
		}
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, self, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, c.uid, c.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := changesTo(st); got != c.want {
			t.Errorf("%s: %q; want %q", c.why, got, c.want)
		}
		if err := preloadable(path); c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.why, err)
		}
	}
}
