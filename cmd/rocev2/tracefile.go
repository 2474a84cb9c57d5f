package main

import (
	"errors"
	"fmt"
	"os"
)

// traceFile is the file of --trace. It keeps the first error, for the end.
type traceFile struct {
	file *os.File
	err  error
}

func createTrace(name string) (*traceFile, error) {
	if name == "" {
		return nil, usagef("--trace has no file: name one")
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	return &traceFile{file: f}, nil
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
		return fmt.Errorf("--trace %s: the file is not complete: %w", t.file.Name(), err)
	}
	return nil
}
