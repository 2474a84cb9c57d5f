package programs

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// needCC skips a test where there is no C compiler, and where tests are to be
// short.
func needCC(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it needs a C compiler, and several processes: run without -short")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler: install gcc")
	}
	return cc
}

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rocev2-test-")
	if err != nil {
		return "", err
	}
	return dir, Build(context.Background(), filepath.Join(dir, LibraryName))
})

func TestMain(m *testing.M) {
	if path := os.Getenv(connectFor); path != "" {
		if err := giveAway(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv(guestOf); path != "" {
		os.Exit(beGuest(path))
	}
	if dir := os.Getenv(serveFor); dir != "" {
		os.Exit(serve(dir))
	}
	code := m.Run()
	if dir, _ := buildOnce(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// library returns the path of the library that this source gives.
func library(t testing.TB) string {
	t.Helper()
	needCC(t)
	dir, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, LibraryName)
}

// libraryCases are those of testdata/check.c, with what is added to the
// environment.
var libraryCases = []string{"paths", "file", "bell", "numbers", "fork", "signals", "threads", "events", "gone", "places", "limit", "passed", "exec", "pages", "reuse", "moves", "crowd", "held", "grown", "noproc", "nopages", "nopages ROCEV2_SHARE=0"}

// TestLibrary runs the cases of testdata/check.c against a fake host.
func TestLibrary(t *testing.T) {
	t.Parallel()
	cc, lib := needCC(t), library(t)
	check := filepath.Join(t.TempDir(), "check")
	if out, err := exec.Command(cc, "-O1", "-o", check, "testdata/check.c", "testdata/crowd.c", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range libraryCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := fakeHost(t, Config{}, nil)
			words := strings.Fields(name)
			cmd := exec.Command(check, words[0])
			cmd.Env = append(append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+h.config.Dir), words[1:]...)
			cmd.WaitDelay = 5 * time.Second // of a child that is left over
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestLibraryStaysOutOfTheWay runs a program where no daemon is.
func TestLibraryStaysOutOfTheWay(t *testing.T) {
	t.Parallel()
	lib := library(t)
	cmd := exec.Command("cat", "/dev/infiniband/uverbs0")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+shortDir(t), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No such file") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestLibrarySaysWhatToDo opens a device of a daemon that has gone.
func TestLibrarySaysWhatToDo(t *testing.T) {
	t.Parallel()
	lib, dir := library(t), shortDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "dev/infiniband"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dev/infiniband/uverbs0"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs0")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+dir)
	out, err := cmd.CombinedOutput()
	if want := "no daemon answers at " + dir + "/socket"; err == nil || strings.Count(string(out), want) != 1 {
		t.Errorf("%v, and not once %q: %s", err, want, out)
	}
}

// newestGlibc is the version that the library may need.
var newestGlibc = []int{2, 31}

// TestLibraryNeedsAnOldGlibc looks at the versions of the symbols.
func TestLibraryNeedsAnOldGlibc(t *testing.T) {
	t.Parallel()
	f, err := elf.Open(library(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	slices.Sort(libs)
	if want := []string{"libc.so.6", "libdl.so.2"}; err != nil || !slices.Equal(libs, want) {
		t.Errorf("it needs %v (%v), want %v", libs, err, want)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == "getenv" {
			t.Error("it reads the environment of setuid programs: use secure_getenv")
		}
		version, ok := strings.CutPrefix(s.Version, "GLIBC_")
		if !ok {
			continue
		}
		for i, part := range strings.Split(version, ".") {
			n, err := strconv.Atoi(part)
			if err != nil || i < len(newestGlibc) && n > newestGlibc[i] {
				t.Errorf("%s needs %s", s.Name, s.Version)
			}
		}
	}
}

func TestBuildWithoutCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	if err := Build(t.Context(), filepath.Join(t.TempDir(), LibraryName)); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("got %v", err)
	}
}
