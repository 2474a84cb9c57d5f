// Package debian installs what tests need from Debian's packages, where that is
// possible: as root on a system with apt.
package debian

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Need is a program, by its name, or a file, by its absolute path, and the
// package of Debian that has it.
type Need struct{ File, Package string }

// Unavailable says that something is missing and cannot be installed, and why.
// Tests skip on it.
type Unavailable struct{ Reason string }

func (e *Unavailable) Error() string { return "not available here: " + e.Reason }

// Missing returns the packages that the host lacks.
func Missing(needs []Need) []string {
	var pkgs []string
	for _, n := range needs {
		_, err := exec.LookPath(n.File)
		if strings.HasPrefix(n.File, "/") {
			_, err = os.Stat(n.File)
		}
		if err != nil && !slices.Contains(pkgs, n.Package) {
			pkgs = append(pkgs, n.Package)
		}
	}
	return pkgs
}

// Install installs what is missing. Its error is [*Unavailable] and names the
// packages. Processes that use the same directory do so one after the other.
func Install(ctx context.Context, dir string, needs []Need, logf func(string, ...any)) error {
	if len(Missing(needs)) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := Lock(dir, "install.lock", logf)
	if err != nil {
		return err
	}
	defer unlock()
	pkgs := Missing(needs) // another process may have installed them
	if len(pkgs) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return &Unavailable{"not root, so that these could be installed: " + strings.Join(pkgs, " ")}
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return &Unavailable{"not installed, and no apt to install them: " + strings.Join(pkgs, " ")}
	}
	logf("installing with apt-get: %s", strings.Join(pkgs, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, pkgs...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
			return &Unavailable{"apt-get " + strings.Join(args, " ") + ": " + err.Error() + "\n" + strings.Join(lines[max(0, len(lines)-10):], "\n")}
		}
	}
	if pkgs = Missing(needs); len(pkgs) > 0 {
		return &Unavailable{"still missing after installation: " + strings.Join(pkgs, " ")}
	}
	return nil
}

// Lock takes a lock in a directory for this process; the returned function
// gives it back. The kernel releases it too when the process dies.
func Lock(dir, name string, logf func(string, ...any)) (func(), error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		logf("waiting for another run, which has %s", f.Name())
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
