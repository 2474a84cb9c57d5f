package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs"
)

// Prepare makes the directory of the daemon's sockets, for the user of the
// daemon. Other users of the node cannot reach it: only root may enter the
// directory above it, and a pod gets the directory itself. That one must not
// have other files.
func Prepare(dir string, uid, gid int) error {
	if err := checkPath(dir); err != nil {
		return err
	}
	for _, n := range []int{uid, gid} {
		if n < 0 || uint64(n) > MostID {
			return fmt.Errorf("%d is not the number of a user or group: 0 to %d", n, MostID)
		}
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	if err := alone(parent, filepath.Base(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() { // also a link, by which another file would change its owner
		return fmt.Errorf("%s is not a directory", dir)
	}
	// The owner comes last: to change the mode of another's file takes a
	// capability more.
	if st.Mode().Perm() != 0o755 {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Lchown(dir, uid, gid); err != nil {
		return err
	}
	return os.Chmod(parent, 0o700)
}

// MostID is the largest number of a user or group: the next one is -1, which
// stands for the one that a file has.
const MostID uint64 = math.MaxUint32 - 1

// alone returns an error where a directory has other files than name: it
// is not the plugin's, and must keep its mode.
func alone(dir, name string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Name() != name {
			return fmt.Errorf("%s has other files (%s): give the daemon's directory one above it of its own, such as /run/rocev2-pods/programs", dir, e.Name())
		}
	}
	return nil
}

// InstallLibraries has a directory contain the two libraries, in a folder that
// is called after what they are, and returns the folder. Those of other
// versions stay: pods that have them may begin again. One that is not complete
// is replaced: a node that lost its power may have left it.
func InstallLibraries(ctx context.Context, dir string) (folder string, err error) {
	if err := directoryAt(dir, "mount a directory of the node there, of the same name (--libraries)"); err != nil {
		return "", err
	}
	if err := executable(dir); err != nil {
		return "", err
	}
	removeLeft(dir)
	fresh, err := os.MkdirTemp(dir, newPrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	file, err := programs.Install(ctx, fresh)
	if err != nil {
		return "", err
	}
	tag := strings.TrimPrefix(filepath.Base(file), "librocev2-preload-")
	tag = strings.TrimSuffix(tag, ".so")
	for _, name := range []string{programs.LibraryName, programs.AdapterName} {
		tagged := strings.TrimSuffix(name, ".so") + "-" + tag + ".so"
		if err := os.Rename(filepath.Join(fresh, tagged), filepath.Join(fresh, name)); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return "", err
	}
	folder = filepath.Join(dir, tag)
	err = os.Rename(fresh, folder)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		if same, _ := sameLibraries(fresh, folder); same {
			return folder, nil // it is there already
		}
		err = unix.Renameat2(unix.AT_FDCWD, fresh, unix.AT_FDCWD, folder, unix.RENAME_EXCHANGE)
	}
	return folder, err
}

// newPrefix is how folders are called that are being made.
const newPrefix = "new-"

// removeLeft removes folders of plugins that ended while they made them.
func removeLeft(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, newPrefix+"*"))
	for _, f := range left {
		if st, err := os.Lstat(f); err == nil && time.Since(st.ModTime()) > time.Hour {
			_ = os.RemoveAll(f) // the next plugin tries again
		}
	}
}

// sameLibraries reports whether two folders have the same libraries.
func sameLibraries(a, b string) (bool, error) {
	for _, name := range []string{programs.LibraryName, programs.AdapterName} {
		one, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			return false, err
		}
		other, err := os.ReadFile(filepath.Join(b, name))
		if err != nil || !bytes.Equal(one, other) {
			return false, err
		}
	}
	return true, nil
}
