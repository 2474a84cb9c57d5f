package plugin_test

import (
	"bytes"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/packaging/kubernetes/internal/plugin"
	"github.com/gosoftroce/rocev2/programs"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	c := plugin.Default()
	if err := c.Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, good := range []string{"rdma.example.com/port", "rocev2/fast_1"} {
		c := c
		if c.Resource = good; c.Check() != nil {
			t.Errorf("%s: %v", good, c.Check())
		}
	}
	for want, change := range map[string]func(*plugin.Config){
		`--resource: "port" has no domain`:                  func(c *plugin.Config) { c.Resource = "port" },
		`--resource: "" has no domain`:                      func(c *plugin.Config) { c.Resource = "" },
		`--resource: "a.kubernetes.io/port"`:                func(c *plugin.Config) { c.Resource = "a.kubernetes.io/port" },
		`--resource: "requests.x/port"`:                     func(c *plugin.Config) { c.Resource = "requests.x/port" },
		`--resource: "Ro ce/port"`:                          func(c *plugin.Config) { c.Resource = "Ro ce/port" },
		`--resource: "a/b/c"`:                               func(c *plugin.Config) { c.Resource = "a/b/c" },
		`--resource: "../port"`:                             func(c *plugin.Config) { c.Resource = "../port" },
		`--resource: "requests.` + strings.Repeat("a", 250): func(c *plugin.Config) { c.Resource = strings.Repeat("a", 250) + "/port" },
		`--ports: 0: it must be between 1 and 10000`:        func(c *plugin.Config) { c.Ports = 0 },
		`--ports: 10001`:                                    func(c *plugin.Config) { c.Ports = 10001 },
		`--interval: 0s`:                                    func(c *plugin.Config) { c.Interval = 0 },
		`--interval: 2h0m0s`:                                func(c *plugin.Config) { c.Interval = 2 * time.Hour },
		`--directory: "run" is not an absolute`:             func(c *plugin.Config) { c.Directory = "run" },
		`--directory: a pod would get all files`:            func(c *plugin.Config) { c.Directory = "/run/.." },
		`--libraries: "/a:b"`:                               func(c *plugin.Config) { c.Libraries = "/a:b" },
		`--kubelet: "" is not an absolute path`:             func(c *plugin.Config) { c.Kubelet = "" },
		`--directory: "/run/x/": write it as "/run/x"`:      func(c *plugin.Config) { c.Directory = "/run/x/" },
		`--libraries: "/var/../etc": write it as "/etc"`:    func(c *plugin.Config) { c.Libraries = "/var/../etc" },
		`--resource: the plugin's socket would be`:          func(c *plugin.Config) { c.Resource = strings.Repeat("a", 60) + "/" + strings.Repeat("b", 60) },
		`--ready: parse "127.0.0.1`:                         func(c *plugin.Config) { c.Ready = "127.0.0.1:14792" },
		`--ready: "https:`:                                  func(c *plugin.Config) { c.Ready = "https://127.0.0.1/readyz" },
	} {
		c := c
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want[:min(len(want), 60)]) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	// All mistakes are told at once.
	c.Ports, c.Resource = -1, "x"
	if err := c.Check(); strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v", err)
	}
}

// What is not there is an error that says what to mount.
func TestRunWithoutDirectories(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*plugin.Config){
		"--directory":                func(c *plugin.Config) { c.Directory = none },
		"--kubelet":                  func(c *plugin.Config) { c.Kubelet = none },
		"--libraries":                func(c *plugin.Config) { c.Libraries = none },
		file + " is not a directory": func(c *plugin.Config) { c.Libraries = file },
	} {
		c := plugin.Default()
		c.Directory, c.Kubelet, c.Libraries = t.TempDir(), t.TempDir(), t.TempDir()
		change(&c)
		if err := plugin.Run(t.Context(), c, slog.New(slog.NewTextHandler(io.Discard, nil))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// The directory of the daemon is for its user, and below one that only root may
// enter.
func TestPrepare(t *testing.T) {
	t.Parallel()
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 65532, 65531
	}
	dir := filepath.Join(t.TempDir(), "pods", "programs")
	for range 2 {
		if err := plugin.Prepare(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o700, dir: 0o755} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	if got := owner(t, dir); got != [2]int{uid, gid} {
		t.Errorf("%s is of %v", dir, got)
	}
	// What a kubelet has made is taken over, whatever its mode is.
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Prepare(dir, uid, gid); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Prepare(dir, uid, gid); err == nil || !strings.Contains(err.Error(), "has other files (other)") {
		t.Errorf("a directory of others: %v", err)
	}
	if err := plugin.Prepare("pods/programs", uid, gid); err == nil {
		t.Error("a relative path is no error")
	}
	// A slash at the end would make the directory the one above itself.
	slash := filepath.Join(t.TempDir(), "pods", "programs") + "/"
	if err := plugin.Prepare(slash, uid, gid); err == nil || !strings.Contains(err.Error(), "write it as") {
		t.Errorf("%s: %v", slash, err)
	}
	if math.MaxInt > math.MaxUint32 { // -1 is "as it is"
		for _, n := range []int{-1, math.MaxUint32 & math.MaxInt} {
			if err := plugin.Prepare(dir, n, gid); err == nil || !strings.Contains(err.Error(), "not the number of a user") {
				t.Errorf("user %d: %v", n, err)
			}
		}
	}
	// A link would give the daemon's user another file.
	victim, trap := t.TempDir(), filepath.Join(t.TempDir(), "pods")
	if err := os.Mkdir(trap, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(trap, "programs")); err != nil {
		t.Fatal(err)
	}
	if err := plugin.Prepare(filepath.Join(trap, "programs"), uid, gid); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a link: %v", err)
	}
	if got := owner(t, victim); got != [2]int{os.Getuid(), os.Getgid()} {
		t.Errorf("the file of the link is of %v", got)
	}
}

// Both libraries are in a folder of their version, with the names that pods
// know. What is there stays.
func TestInstallLibraries(t *testing.T) {
	t.Parallel()
	if !programs.Carried() {
		t.Skip("this test carries no libraries for pods (make preload builds them)")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "older"), 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := plugin.InstallLibraries(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := plugin.InstallLibraries(t.Context(), dir)
	if err != nil || first != second || filepath.Dir(first) != dir {
		t.Errorf("folders %s and %s, %v", first, second, err)
	}
	if after, err := os.Stat(first); err != nil || !os.SameFile(before, after) || after.Mode().Perm() != 0o755 {
		t.Errorf("the folder is another one, or closed: %v, %v", after.Mode(), err)
	}
	for _, name := range []string{programs.LibraryName, programs.AdapterName} {
		if st, err := os.Stat(filepath.Join(first, name)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 {
		t.Errorf("%v", list)
	}
}

// TestLibrariesAreWhole: a library that a node without power has left empty is
// replaced, and so is what a plugin has left that was killed.
func TestLibrariesAreWhole(t *testing.T) {
	t.Parallel()
	if !programs.Carried() {
		t.Skip("this test carries no libraries for pods (make preload builds them)")
	}
	dir := t.TempDir()
	folder, err := plugin.InstallLibraries(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{programs.LibraryName, programs.AdapterName} {
		file := filepath.Join(folder, name)
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, spoil := range []func() error{func() error { return os.Truncate(file, 0) }, func() error { return os.Remove(file) }} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if again, err := plugin.InstallLibraries(t.Context(), dir); err != nil || again != folder {
				t.Fatal(again, err)
			}
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(want), err)
			}
		}
	}
	killed, running := filepath.Join(dir, "new-1"), filepath.Join(dir, "new-2")
	for _, d := range []string{killed, running} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(killed, time.Time{}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := plugin.InstallLibraries(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 2 || list[0].Name() == "new-1" || list[1].Name() == "new-1" {
		t.Errorf("%v", list)
	}
}
