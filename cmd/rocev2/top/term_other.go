//go:build !linux && !darwin

package top

import "os"

// OpenTerminal finds none: on this system tables are printed.
func OpenTerminal(_, _ *os.File) (Terminal, error) { return nil, ErrNoTerminal }
