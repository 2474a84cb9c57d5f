// Package regular opens files that users name. What is no regular file, such as
// a named pipe, is an error at once: to open or to read it could take forever.
package regular

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"syscall"
)

// Open opens a regular file to read.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is as os.OpenFile, for a regular file alone.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if st, err := os.Stat(name); err == nil { // to open a device may do something
		if err := Check(name, st); err != nil {
			return nil, err
		}
	}
	if runtime.GOOS != "windows" {
		flag |= syscall.O_NONBLOCK // it may be another file by now
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = Check(name, st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns what is in a regular file, which has at most most bytes.
func Read(name string, most int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadOpen(f, most)
}

// ReadOpen returns what is in an open file, which has at most most bytes.
func ReadOpen(f *os.File, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(b)) > most:
		return nil, fmt.Errorf("%s has more than %d bytes: it is another file than the one that is meant", f.Name(), most)
	}
	return b, nil
}

// Check returns an error that says what a file is, if it is no regular one.
func Check(name string, st fs.FileInfo) error {
	if st.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is %s, and no regular file: name a file", name, kind(st.Mode()))
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
