//go:build !portable

package main

import (
	"strings"
	"testing"
)

// Both processes of the demo ask for shared memory: else none would be used.
func TestDemoSharesMemory(t *testing.T) {
	t.Parallel()
	for range 10 { // a short demo may be over before the two have agreed
		r := invoke(t.Context(), "demo", "--local", freeAddress(), "--peer", freeAddress(), "--rates", "50ms", "--shm")
		if r.code != 0 {
			t.Fatalf("exit status %d: %s\n%s", r.code, r.err, r.out)
		}
		if strings.Contains(r.err, "received went through shared memory") {
			return
		}
	}
	t.Error("no packet went through shared memory")
}
