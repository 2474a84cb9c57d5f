package userdir

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shared returns a directory that is as /tmp is.
func shared(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}

func opened(t *testing.T, path string) string {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", st, err)
	}
	return f.Name()
}

// The directory is made once, and found again.
func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shared(t), "x")
	for range 2 {
		if got := opened(t, path); got != path {
			t.Errorf("%s", got)
		}
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

// What others may have put there is passed by.
func TestOpenPassesWhatIsNotTheUsers(t *testing.T) {
	t.Parallel()
	for name, foreign := range map[string]func(string) error{
		"a file":         func(p string) error { return os.WriteFile(p, nil, 0o600) },
		"a link":         func(p string) error { return os.Symlink(t.TempDir(), p) },
		"a broken link":  func(p string) error { return os.Symlink("nowhere", p) },
		"an open one":    func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chmod(p, 0o755)) },
		"another user's": func(p string) error { return errors.Join(os.Mkdir(p, 0o700), os.Chown(p, 12345, 12345)) },
	} {
		path := filepath.Join(shared(t), "x")
		if err := foreign(path); errors.Is(err, syscall.EPERM) {
			t.Logf("%s: only root can make it", name)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := opened(t, path); got != path+".1" {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
}

// A process of the user comes to the directory of those before, also when what
// was in the way of theirs is gone, and though others make and remove theirs
// all the time.
func TestOpenAgainWhereOthersGo(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shared(t), "x")
	inTheWay := func() error { return os.WriteFile(path, nil, 0o600) }
	if err := inTheWay(); err != nil {
		t.Fatal(err)
	}
	opened(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := opened(t, path); got != path+".1" {
		t.Errorf("then %s", got)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				os.Remove(path + ".0") // as if that were the path
				os.Symlink("nowhere", path+".0")
			}
		}
	}()
	for range 100 {
		f, err := Open(path + ".0")
		if err != nil {
			t.Error(err)
			break
		}
		f.Close()
		os.Remove(f.Name())
	}
	close(stop)
	<-stopped
}

// Where others may put another directory in its place there is none.
func TestOpenWithoutStickyBit(t *testing.T) {
	t.Parallel()
	dir := shared(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(dir, "x")); !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "sticky") {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(dir, "none", "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

const helperEnv = "ROCEV2_TEST_USERDIR"

// TestMain is also the process of another user.
func TestMain(m *testing.M) {
	if path := os.Getenv(helperEnv); path != "" {
		f, err := Open(path)
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(f.Name())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// as opens the directory as a user that is number 0 in a user namespace. self
// is this program, where that user can reach it.
func as(t *testing.T, self string, uid int, path string) (string, error) {
	t.Helper()
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), helperEnv+"="+path)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{NoSetGroups: true}}
	out, err := cmd.Output()
	return string(out), err
}

// Users that have the same number, each in a user namespace, do not keep each
// other out, and each finds its own again.
func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs two users: run it as root")
	}
	dir, err := os.MkdirTemp("", "u") // that others can come to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	self := filepath.Join(dir, "self")
	if program, err := os.ReadFile("/proc/self/exe"); err != nil {
		t.Fatal(err)
	} else if err := errors.Join(os.WriteFile(self, program, 0o755), os.Chmod(self, 0o755)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "rocev2-0")
	want := map[int]string{20001: path, 20002: path + ".1", 20003: path + ".2"}
	for range 2 {
		for _, uid := range []int{20001, 20002, 20003} {
			got, err := as(t, self, uid, path)
			if err != nil && got == "" {
				t.Skipf("this user may not make a user namespace (run as root, or set sysctl user.max_user_namespaces): %v", err)
			}
			if err != nil || got != want[uid] {
				t.Errorf("user %d: %s, %v; want %s", uid, got, err, want[uid])
			}
		}
	}
	if got := opened(t, path); got != path+".3" {
		t.Errorf("root has %s", got)
	}
}

// XDG_RUNTIME_DIR counts where it is this user's.
func TestRuntime(t *testing.T) { // not parallel: it changes the environment
	dir := t.TempDir()
	for mode, want := range map[os.FileMode]string{0o700: dir, 0o755: dir, 0o777: "", 0o770: ""} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Setenv("XDG_RUNTIME_DIR", dir)
		if got := Runtime(); got != want {
			t.Errorf("%o: %q, want %q", mode, got, want)
		}
	}
	for _, not := range []string{"", "relative", filepath.Join(dir, "none")} {
		t.Setenv("XDG_RUNTIME_DIR", not)
		if got := Runtime(); got != "" {
			t.Errorf("%q: %q", not, got)
		}
	}
}
