package programs

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestLibraryWithMusl runs the cases of testdata/check.c with another libc than
// glibc.
func TestLibraryWithMusl(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a C compiler, and several processes: run without -short")
	}
	cc, err := exec.LookPath("musl-gcc")
	if err != nil {
		t.Skip("there is no musl-gcc: install musl-tools")
	}
	dir := t.TempDir()
	lib, check := filepath.Join(dir, LibraryName), filepath.Join(dir, "check")
	t.Setenv("CC", cc)
	if err := Build(t.Context(), lib); err != nil {
		t.Fatal(err)
	}
	fakeAdapter(t, cc, dir)
	compileFor(t, cc, "-fPIE", "-pie", "-o", check, "testdata/check.c", "testdata/strangers.c")
	// Neither a thread's stack nor what a jump leaves is as with glibc, and
	// no adapter can be loaded there.
	runCases(t, check, slices.DeleteFunc(slices.Clone(libraryCases), func(s string) bool { return s == "stacks" || s == "jump" }), "LD_PRELOAD="+lib)
}
