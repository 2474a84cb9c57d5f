package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sanitized compiles a program of testdata together with the library, whose
// functions then stand before those of libc all the same, with sanitizers of
// the compiler.
func sanitized(t *testing.T, name, kind string, args ...string) string {
	t.Helper()
	cc := needCC(t)
	probe := filepath.Join(t.TempDir(), "probe")
	build := exec.Command(cc, "-fsanitize="+kind, "-x", "c", "-o", probe, "-")
	build.Stdin = strings.NewReader("int main(void) { return 0; }")
	out, err := build.CombinedOutput()
	if err == nil {
		out, err = exec.Command(probe).CombinedOutput() // some kernels' layout of memory is not theirs
	}
	if err != nil {
		t.Skipf("the compiler has no -fsanitize=%s: %v %s", kind, err, out)
	}
	sources, err := filepath.Glob("preload/*.c")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), name)
	args = append([]string{"-std=gnu11", "-O1", "-g", "-fsanitize=" + kind, "-fno-sanitize-recover=undefined", "-o", bin, "testdata/" + name + ".c"}, append(sources, args...)...)
	if out, err := exec.Command(cc, append(args, "-lpthread", "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestLibrarySanitized runs the cases of testdata/check.c with sanitizers.
func TestLibrarySanitized(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"address,undefined", "thread"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			check := sanitized(t, "check", kind, "testdata/crowd.c")
			for _, name := range libraryCases {
				t.Run(name, func(t *testing.T) {
					h := fakeHost(t, Config{}, nil)
					words := strings.Fields(name)
					cmd := exec.Command(check, words[0])
					cmd.Env = append(append(os.Environ(), "ROCEV2_PROGRAMS="+h.config.Dir, "ASAN_OPTIONS=detect_leaks=0",
						"TSAN_OPTIONS=die_after_fork=0"), words[1:]...)
					cmd.WaitDelay = 5 * time.Second
					if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}

// TestVerbsSanitized runs cases of testdata/verbs.c so, some of them with a
// thread that copies.
func TestVerbsSanitized(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("processes of several users: run it as root")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("there are no headers of libibverbs: install libibverbs-dev")
	}
	reachPrograms(t)
	const daemon, other = 64001, 64002
	for _, kind := range []string{"address,undefined", "thread"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := openTo(t, 0, sanitized(t, "verbs", kind, "-libverbs"))
			for _, name := range []string{"import", "counters", "copier", "stopped"} {
				t.Run(name, func(t *testing.T) {
					cmd := exec.Command(filepath.Join(dir, "verbs"), name)
					as(cmd, other)
					cmd.Env = append(os.Environ(), "ROCEV2_PROGRAMS="+daemonOf(t, daemon), "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=die_after_fork=0")
					cmd.WaitDelay = 5 * time.Second
					if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}
