package programs

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testprogram"
)

// sanitized compiles a program of testdata together with the library, whose
// functions then stand before those of libc all the same, with sanitizers of
// the compiler.
func sanitized(t *testing.T, name, kind string, args ...string) string {
	t.Helper()
	cc := testprogram.NeedCC(t)
	probe := filepath.Join(t.TempDir(), "probe")
	build := exec.Command(cc, "-fsanitize="+kind, "-x", "c", "-o", probe, "-")
	build.Stdin = strings.NewReader("int main(void) { return 0; }")
	out, err := build.CombinedOutput()
	if err == nil {
		out, err = exec.Command(probe).CombinedOutput() // some kernels' layout of memory is not theirs
	}
	if err != nil {
		t.Skipf("the compiler has no -fsanitize=%s (on Debian: apt-get install gcc): %v %s", kind, err, out)
	}
	sources, err := filepath.Glob("preload/*.c")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fakeAdapter(t, cc, dir)
	bin := filepath.Join(dir, LibraryName) // the adapter is found by that
	args = append([]string{"-std=gnu11", "-O1", "-g", "-fsanitize=" + kind, "-fno-sanitize-recover=undefined", "-o", bin, "testdata/" + name + ".c"}, append(sources, args...)...)
	if out, err := exec.Command(cc, append(args, "-lpthread", "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestLibrarySanitized runs the cases of testdata/check.c with sanitizers, but
// those of signals and stacks: of these the sanitizers have their own. Nor that
// of fork: the child may find the sanitizer's allocator locked by a thread that
// it does not have, and hang (llvm-project#75290 mends that, for LLVM 18; GCC
// 12 has it not).
func TestLibrarySanitized(t *testing.T) {
	t.Parallel()
	check := sanitized(t, "check", "address,undefined", "testdata/strangers.c")
	runCases(t, check, []string{"paths", "places", "file", "wait", "numbers", "standard", "threads", "events", "gone", "limit"}, "ASAN_OPTIONS=detect_leaks=0:handle_segv=0")
}
