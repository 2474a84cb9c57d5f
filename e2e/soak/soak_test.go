//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestSoak is a soak of seconds, with more faults than a long one has.
func TestSoak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it is a run of seconds: run without -short")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 without setting it up: run it there")
	}
	bin := filepath.Join(t.TempDir(), "soak")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) func(*testing.T) {
		return func(t *testing.T) {
			args = append(args, "-for", "6s", "-conns", "16", "-report", "500ms", "-chaos", "700ms", "-dir", t.TempDir())
			out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, silent := range []string{" 0 rounds", " 0 connections verified", "\n0 kills, 0 stops, 0 restarts"} {
				if strings.Contains(string(out), silent) {
					t.Errorf("nothing was tried:\n%s", out)
				}
			}
		}
	}
	t.Run("each with its address", run())
	t.Run("one address", run("-shared"))
}

// What a connection has written is told from all else.
func TestRecords(t *testing.T) {
	t.Parallel()
	b := make([]byte, recordLen)
	fill(b, 3, 7)
	if err := check(b, 3, 7); err != nil {
		t.Error(err)
	}
	for _, other := range []struct {
		conn int
		seq  uint64
	}{{3, 6}, {2, 7}} {
		if check(b, other.conn, other.seq) == nil {
			t.Errorf("record 7 of connection 3 passes for record %d of connection %d", other.seq, other.conn)
		}
	}
	for i := range b {
		b[i] ^= 1
		if check(b, 3, 7) == nil {
			t.Errorf("a changed byte %d passes", i)
		}
		b[i] ^= 1
	}
	if place(0, 1) == place(0, 2) || place(0, 1) == place(1, 1) {
		t.Error("records that are needed share a place")
	}
}
