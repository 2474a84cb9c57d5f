package programs

import (
	"context"
	"debug/elf"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/internal/testprogram"
	"github.com/gosoftroce/rocev2/verbs"
)

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rocev2-test-")
	if err != nil {
		return "", err
	}
	return dir, Build(context.Background(), filepath.Join(dir, LibraryName))
})

// library returns the path of the library that this source gives.
func library(t testing.TB) string {
	t.Helper()
	testprogram.NeedCC(t)
	dir, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, LibraryName)
}

// libraryCases are those of testdata/check.c.
var libraryCases = []string{"paths", "places", "file", "wait", "cancel", "numbers", "standard", "fork", "signals", "threads", "events", "gone", "limit", "full", "ends", "closed",
	"deferred", "actions", "masks", "faults", "inner", "pipe", "stacks",
	"restart", "jump", "handler", "user", "early"}

// compileFor runs the C compiler, which has nothing to say.
func compileFor(t testing.TB, cc string, args ...string) {
	t.Helper()
	args = append([]string{"-O1", "-Wall", "-Wno-deprecated-declarations"}, args...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fakeAdapter builds testdata/adapter.c into a folder, for the library there.
func fakeAdapter(t testing.TB, cc, dir string) {
	t.Helper()
	compileFor(t, cc, "-fPIC", "-shared", "-fvisibility=hidden", "-o", filepath.Join(dir, AdapterName), "testdata/adapter.c", "-lpthread")
}

// fakeTree makes the directory of a daemon with a device, without a daemon.
func fakeTree(t testing.TB) string {
	t.Helper()
	made := tree{dir: t.TempDir(), shown: true}
	port := verbs.PortAttr{State: verbs.PortActive, PhysState: verbs.PhysLinkUp, Interface: "lo"}
	if err := errors.Join(made.begin(), made.manager(),
		made.device(attributes{name: "rxe_lo0", addr: netip.MustParseAddr("127.0.0.1"), guid: 0x0011223344556677, port: port}),
		os.WriteFile(made.beside(holdSocket), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	return made.dir
}

// copyFile has a folder contain a file as well.
func copyFile(t testing.TB, file, dir string) string {
	t.Helper()
	to := filepath.Join(dir, filepath.Base(file))
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// preloaded is a program that runs with the library in a directory.
func preloaded(t testing.TB, lib, tree, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "ROCEV2_PROGRAMS="+tree, "LC_ALL=C")
	cmd.WaitDelay = 5 * time.Second // of a child that is left over
	return cmd
}

// silent runs one that has nothing to say.
func silent(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// runCases runs cases of testdata/check.c.
func runCases(t *testing.T, check string, cases []string, env ...string) {
	for _, name := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(check, name)
			cmd.Env = append(append(os.Environ(), "ROCEV2_PROGRAMS="+fakeTree(t)), env...)
			cmd.WaitDelay = 5 * time.Second // of a child that is left over
			if out, err := cmd.CombinedOutput(); err != nil || len(aboutSanitizers.ReplaceAll(out, nil)) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// aboutSanitizers is what a sanitizer says of itself, and not of the program.
var aboutSanitizers = regexp.MustCompile(`(?m)^==\d+==WARNING: ASan doesn't fully support makecontext/swapcontext.*\n`)

// TestLibrary runs the cases of testdata/check.c with a fake adapter.
func TestLibrary(t *testing.T) {
	t.Parallel()
	cc, dir := testprogram.NeedCC(t), t.TempDir()
	lib := copyFile(t, library(t), dir)
	fakeAdapter(t, cc, dir)
	check := filepath.Join(dir, "check")
	compileFor(t, cc, "-o", check, "testdata/check.c", "testdata/strangers.c", "-lpthread")
	runCases(t, check, libraryCases, "LD_PRELOAD="+lib)
}

// TestLibraryStaysOutOfTheWay runs a program where no daemon is.
func TestLibraryStaysOutOfTheWay(t *testing.T) {
	t.Parallel()
	lib := library(t)
	out, err := preloaded(t, lib, t.TempDir(), "cat", "/dev/infiniband/uverbs0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No such file") {
		t.Errorf("%v: %s", err, out)
	}
}

// A program asks whether it may write the device file before it opens the
// device (UCX): it may, although the daemon is another user's and its file is
// not to be written. What is no device file is as it is.
func TestAccessOfDeviceFiles(t *testing.T) {
	t.Parallel()
	lib, made := library(t), fakeTree(t)
	for _, name := range []string{"dev/infiniband/uverbs0", "sys/class/infiniband/rxe_lo0/node_guid"} {
		if err := os.Chmod(filepath.Join(made, name), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	command := []string{"python3", "-c", `import os
for path in "/dev/infiniband/uverbs0", "/sys/class/infiniband/rxe_lo0/node_guid":
    print([os.access(path, mode) for mode in (os.F_OK, os.R_OK, os.W_OK, os.R_OK | os.W_OK, os.X_OK)])`}
	if os.Geteuid() == 0 { // root without what lets it write every file
		command = append([]string{"setpriv", "--bounding-set=-all"}, command...)
	}
	for _, program := range []string{command[0], "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: install it", program)
		}
	}
	out, err := preloaded(t, lib, made, command[0], command[1:]...).CombinedOutput()
	if want := "[True, True, True, True, False]\n[True, True, False, False, False]\n"; err != nil || string(out) != want {
		t.Errorf("%v: access says\n%swant\n%s", err, out, want)
	}
}

// TestLibrarySaysWhatToDo opens a device without an adapter, and with too
// little address space for one.
func TestLibrarySaysWhatToDo(t *testing.T) {
	t.Parallel()
	cc, dir := testprogram.NeedCC(t), t.TempDir()
	lib := copyFile(t, library(t), dir)
	open := func(limit string) string {
		script := "ulimit -v " + limit + "; cat /dev/infiniband/uverbs0 /dev/infiniband/uverbs0"
		out, err := preloaded(t, lib, fakeTree(t), "sh", "-c", script).CombinedOutput()
		if err == nil {
			t.Errorf("it ends with status 0: %s", out)
		}
		return string(out)
	}
	adapter := filepath.Join(dir, AdapterName)
	if out, want := open("unlimited"), "there is no adapter at "+adapter+": install it"; strings.Count(out, want) != 1 {
		t.Errorf("not once %q: %s", want, out)
	}
	if err := os.WriteFile(adapter, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, want := open("unlimited"), "the adapter cannot be loaded: "+adapter; strings.Count(out, want) != 1 {
		t.Errorf("not once %q: %s", want, out)
	}
	compileFor(t, cc, "-fPIC", "-shared", "-o", adapter, "-x", "c", "/dev/null")
	if out, want := open("unlimited"), "install both from one build"; strings.Count(out, want) != 1 {
		t.Errorf("not once %q: %s", want, out)
	}
	fakeAdapter(t, cc, dir)
	if out, want := open("1000000"), "the adapter needs 1.7 GB of address space"; strings.Count(out, want) != 1 {
		t.Errorf("not once %q: %s", want, out)
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
	if want := []string{"libc.so.6", "libdl.so.2", "libpthread.so.0"}; err != nil || !slices.Equal(libs, want) {
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

// A device of another user's daemon, in a directory that a program may only
// read, seems to be one that it may write, as the kernel's are: UCX asks before
// it opens one.
func TestDeviceOfAnotherUser(t *testing.T) {
	t.Parallel()
	test, err := exec.LookPath("test")
	if err != nil {
		t.Skip(err)
	}
	dir, tree := t.TempDir(), fakeTree(t)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	lib := copyFile(t, library(t), dir)
	for _, node := range []string{"uverbs0", "rdma_cm"} {
		if err := os.Chmod(filepath.Join(tree, "dev/infiniband", node), 0o444); err != nil {
			t.Fatal(err)
		}
		for _, right := range []string{"-r", "-w"} {
			cmd := preloaded(t, lib, tree, test, right, "/dev/infiniband/"+node)
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("test %s /dev/infiniband/%s: %v\n%s", right, node, err, out)
			}
		}
	}
}
