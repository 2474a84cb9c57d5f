package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
)

// A file arrives as it is.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	program := testprogram.Build(t)
	dir := t.TempDir()
	content := make([]byte, 5<<20+321)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	addr, _ := testprogram.Addresses()
	addr += ":7471"
	program.Start(addr, "serve", addr, from)
	program.Output("get", addr, "from", to)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes arrive, or others (%v)", len(got), err)
	}
	if _, out, err := program.Run("get", addr, "nothing", to); err == nil || !strings.Contains(out, "unknown region") {
		t.Errorf("a file that is not served: %q (%v)", out, err)
	}
}
