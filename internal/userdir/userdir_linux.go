package userdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// mostNames is how many names are tried. A user that makes directories of all
// of them keeps this one out, and could fill the disk as well.
const mostNames = 1000

// ErrUnfit is wrapped by the error of Open where others could put another
// directory into the place of the user's.
var ErrUnfit = errors.New("others may take files away there")

// Runtime returns XDG_RUNTIME_DIR if it is a directory of this user that others
// cannot write, and else "". Programs that su or sudo have started may have
// another user's.
func Runtime() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	var st unix.Stat_t
	if !filepath.IsAbs(dir) || unix.Stat(dir, &st) != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return ""
	}
	return dir
}

// Name returns the name that a directory of this user has among those of
// others.
func Name() string { return "rocev2-" + strconv.Itoa(os.Geteuid()) }

// Open opens a directory that only this user can enter, and makes it if it is
// not there. Its path is the one given, or if another user has made that, the
// same with ".1", ".2" and so on: the first that is this user's, or if none is,
// the first that is free. So all processes of a user come to the same, also
// when what others have made is gone. User numbers do not tell users apart: in
// user namespaces several are 0. The file is the directory that was checked,
// whatever has its path by now.
func Open(path string) (*os.File, error) {
	parent := filepath.Dir(path)
	var st unix.Stat_t
	if err := unix.Stat(parent, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: parent, Err: err}
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return nil, fmt.Errorf("%s: %w, because it has no sticky bit: set it, or set TMPDIR to another directory", parent, ErrUnfit)
	}
	for _, attempt := range []func(string) (*os.File, error){open, makeAndOpen} {
		for i := range mostNames {
			name := path
			if i > 0 {
				name += "." + strconv.Itoa(i)
			}
			// One that is gone was another user's: no other user
			// can remove this user's.
			f, err := attempt(name)
			if !errors.Is(err, errForeign) && !errors.Is(err, fs.ErrNotExist) {
				return f, err
			}
		}
	}
	return nil, fmt.Errorf("%s, and %d more with numbers after it, are not of this user: remove them, or set TMPDIR", path, mostNames-1)
}

// errForeign is the reason not to use a directory.
var errForeign = errors.New("it is not a directory that only this user can enter")

func makeAndOpen(path string) (*os.File, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return open(path)
}

func open(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		return nil, errForeign
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0 {
		f.Close()
		return nil, errForeign
	}
	return f, nil
}
