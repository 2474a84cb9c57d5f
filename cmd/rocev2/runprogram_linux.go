package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/internal/userdir"
	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/verbs"
)

// programsEnv names the daemon's directory; the library reads it, too.
const programsEnv = "ROCEV2_PROGRAMS"

// systemPrograms is the directory of the system's daemon.
const systemPrograms = "/run/rocev2"

// runProgram becomes the program, and returns only if that fails. With --stats
// and --strict the program is a child.
func runProgram(ctx context.Context, s streams, f programFlags, args []string) error {
	path, err := lookPath(args[0])
	if err != nil {
		return f.strict.meant(args[0], err)
	}
	if err := preloadable(path); err != nil {
		return notRun(args[0], err)
	}
	addrs, err := deviceAddrs(f.devices)
	if err != nil {
		return err
	}
	library, err := unpackLibrary(ctx)
	if err != nil {
		return err
	}
	dir, held, err := findDaemon(ctx, f, addrs)
	if err != nil {
		return err
	}
	env := programEnv(os.Environ(), dir, library)
	strict, err := f.strict.begin()
	if err != nil {
		return err
	}
	if f.stats != "" || strict != nil {
		return runWithStats(s, held, f, strict, path, args, strict.env(env))
	}
	// The program keeps the connection, so the daemon lasts as long.
	if err := held.keepOverExec(); err != nil {
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	started.restore()
	return notRun(args[0], syscall.Exec(path, args, env))
}

// Exit statuses of shells, and of env(1), nice(1) and their like.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// notRun returns the error for a program that could not be run, with the status
// that shells have for it.
func notRun(name string, err error) error {
	status := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	return statusError{fmt.Errorf("run %s: %w", name, err), status}
}

// lookPath finds a program as shells do: what is found and cannot be executed
// is another mistake than what is not found.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	if e := errors.Unwrap(err); e != nil {
		err = e
	}
	if errors.Is(err, exec.ErrNotFound) && name != "" && !strings.Contains(name, "/") {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			if st, e := os.Stat(filepath.Join(dir, name)); e == nil && !st.IsDir() {
				err = fmt.Errorf("%s: %w", filepath.Join(dir, name), fs.ErrPermission)
			}
		}
	}
	return "", notRun(name, err)
}

// deviceAddrs returns the addresses that the names stand for. Without a name
// there are none.
func deviceAddrs(names []string) (addrs []netip.Addr, err error) {
	for _, name := range names {
		addr, err := verbs.ResolveAddr(name)
		if err != nil {
			return nil, fmt.Errorf("device %q: %w", name, err)
		}
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// programEnv returns the environment of the program.
func programEnv(env []string, dir, library string) []string {
	env = slices.Clone(env)
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		env = append(env, name+"="+value)
	}
	preload := library
	for _, s := range env {
		if old, ok := strings.CutPrefix(s, "LD_PRELOAD="); ok && old != "" {
			kept := slices.DeleteFunc(strings.FieldsFunc(old, func(r rune) bool { return r == ':' || r == ' ' }),
				func(s string) bool { return strings.HasPrefix(filepath.Base(s), "librocev2-preload") })
			preload = strings.Join(append(kept, library), ":")
		}
	}
	set("LD_PRELOAD", preload)
	set(programsEnv, dir)
	return env
}

// privateDir returns a directory that only this user can enter.
func privateDir(parent string) (string, error) {
	f, err := userdir.Open(filepath.Join(parent, userdir.Name()))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return f.Name(), nil
}

// runtimeDir is where the user's daemons and the library live.
func runtimeDir() (string, error) {
	if dir := userdir.Runtime(); dir != "" {
		if private, err := privateDir(dir); err == nil {
			return private, nil
		}
	}
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "", err
	}
	return privateDir(temp)
}

// libraryDir returns a directory from which the dynamic linker can preload.
func libraryDir() (string, error) {
	dir, err := runtimeDir()
	if err != nil {
		return "", err
	}
	unfit := loadableFrom(dir)
	if unfit == nil {
		return dir, nil
	}
	for _, parent := range []func() (string, error){
		func() (string, error) { return filepath.Abs(os.TempDir()) },
		os.UserCacheDir,
	} {
		name, err := parent()
		if err == nil {
			name, err = privateDir(name)
		}
		if err == nil && loadableFrom(name) == nil {
			return name, nil
		}
	}
	return "", unfit
}

// loadableFrom returns an error that says why the dynamic linker takes no
// library from a directory. It warns only, and runs the program without.
func loadableFrom(dir string) error {
	if strings.ContainsAny(dir, " :$") {
		return fmt.Errorf("LD_PRELOAD cannot name a file in %q: set TMPDIR to a directory without blanks, colons and dollar signs", dir)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s is mounted noexec, so no library is loaded from there: set TMPDIR to another directory", dir)
	}
	return nil
}

// unpackLibrary has a folder contain the preload library and the adapter, and
// returns the file of the first.
func unpackLibrary(ctx context.Context) (string, error) {
	dir, err := libraryDir()
	if err != nil {
		return "", err
	}
	return programs.Install(ctx, dir)
}

// findDaemon returns the directory of a daemon that answers, and a connection
// that keeps it. It starts one if need be.
func findDaemon(ctx context.Context, f programFlags, addrs []netip.Addr) (dir string, held *heldDaemon, err error) {
	dir = os.Getenv(programsEnv)
	if dir == "" && len(addrs) == 0 {
		if held, err := hold(systemPrograms); err == nil {
			return systemPrograms, held, nil
		}
		if how := closedDaemon(systemPrograms); how != "" {
			defer func() {
				if err != nil {
					err = fmt.Errorf("%s\n%w", how, err)
				}
			}()
		}
	}
	if len(addrs) == 0 {
		addr, _, err := chooseAddress("")
		if err != nil {
			return "", nil, err
		}
		addrs = []netip.Addr{addr}
	}
	if dir == "" {
		parent, err := runtimeDir()
		if err != nil {
			return "", nil, err
		}
		dir = filepath.Join(parent, daemonName(f, addrs))
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	held, err = holdOrStart(ctx, dir, f, addrs)
	return dir, held, err
}

// daemonName is the name of the directory for what a daemon serves.
func daemonName(f programFlags, addrs []netip.Addr) string {
	var names []string
	for _, a := range addrs {
		names = append(names, a.String())
	}
	if f.hardware {
		names = append(names, "hardware")
	}
	if f.shm {
		names = append(names, "shm")
	}
	name := strings.NewReplacer(":", "_", "%", "-", "/", "-").Replace(strings.Join(names, ","))
	if len(name) > 40 {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:8])
	}
	return name
}
