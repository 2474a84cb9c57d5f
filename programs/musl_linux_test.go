package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	if out, err := exec.Command(cc, "-O1", "-fPIE", "-pie", "-o", check, "testdata/check.c", "testdata/crowd.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range libraryCases {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, Config{}, nil)
			words := strings.Fields(name)
			cmd := exec.Command(check, words[0])
			cmd.Env = append(append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir), words[1:]...)
			cmd.WaitDelay = 5 * time.Second
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
