package pathlength

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// limits are how many functions each part may have. They are lowered when a
// part has become shorter.
var limits = [3]struct {
	part string
	most int
}{
	{"from the post to the system call that sends", 166},
	{"at the peer, from the datagram to the acknowledgement", 238},
	{"from the acknowledgement to the completion", 154},
}

// The way of a message is not longer than it was.
func TestPath(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds all with counters: run without -short")
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has all of 127.0.0.0/8 without setting it up: run it there")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// A busy machine can add to every round of a walk, but hardly to every
	// walk.
	var wrong []string
	for range 3 {
		parts, err := measure(t.Context(), root, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if wrong = faults(t, parts); len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// faults prints the lengths, and returns which is too long and which could not
// be counted.
func faults(t *testing.T, parts [3]length) (wrong []string) {
	for i, l := range parts {
		limit := limits[i]
		t.Logf("%s: %d functions, %d calls, %d files, in each of %d rounds", limit.part, len(l.functions), l.calls(), l.files(), l.rounds)
		if l.rounds < 3 || len(l.functions) < 50 {
			wrong = append(wrong, limit.part+": the rounds have little in common")
		}
		if n := len(l.functions); n > limit.most {
			wrong = append(wrong, fmt.Sprintf("%s: %d functions; %d are allowed. With their calls:\n%s", limit.part, n, limit.most, strings.Join(l.list(), "\n")))
		}
	}
	return wrong
}
