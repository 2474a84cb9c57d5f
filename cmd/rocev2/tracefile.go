package main

import (
	"errors"
	"fmt"
	"os"
)

// traceFile is the file of --trace, or of a flag like it. It keeps the first
// error, for the end.
type traceFile struct {
	flag string
	file *os.File
	err  error
}

func createTrace(name string) (*traceFile, error) { return createFile("--trace", name) }

func createFile(flag, name string) (*traceFile, error) {
	if name == "" {
		return nil, usagef("%s has no file: name one", flag)
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &traceFile{flag: flag, file: f}, nil
}

func (t *traceFile) Write(b []byte) (n int, err error) {
	if t.err == nil {
		n, t.err = t.file.Write(b)
	}
	return n, t.err
}

// close closes the file, after its last writer, and says whether it is
// complete. Without a file it does nothing.
func (t *traceFile) close() error {
	if t == nil {
		return nil
	}
	if err := errors.Join(t.err, t.file.Close()); err != nil {
		return fmt.Errorf("%s %s: the file is not complete: %w", t.flag, t.file.Name(), err)
	}
	return nil
}
