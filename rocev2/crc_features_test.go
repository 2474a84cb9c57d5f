package rocev2

import (
	"strings"
	"testing"
)

// The text names the instructions of this package's kernel exactly where this
// processor runs it.
func TestICRCFeatures(t *testing.T) {
	t.Parallel()
	got := ICRCFeatures()
	if got == "" || strings.Contains(got, "\n") {
		t.Fatalf("features are %q, want one line", got)
	}
	if haveKernel && (strings.HasPrefix(got, "none") || strings.Contains(got, "hash/crc32")) {
		t.Errorf("features are %q, and there is a kernel of this package", got)
	}
}
