package testprogram

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// NeedCC returns the C compiler. It skips the test where there is none; where
// cgo is left out (CGO_ENABLED=0), as with tests as a 32-bit process; and where
// tests are to be short.
func NeedCC(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs a C compiler, and several processes: run without -short")
	}
	if os.Getenv("CGO_ENABLED") == "0" {
		t.Skipf("it builds a library for C programs of %s, and CGO_ENABLED=0 leaves C out: run without it, with a C compiler for %[1]s", runtime.GOARCH)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler: install gcc")
	}
	return cc
}
