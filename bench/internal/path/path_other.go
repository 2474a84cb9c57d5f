//go:build !linux

package path

import (
	"errors"
	"os/exec"
)

// Path is a path that is open.
type Path struct{}

// Open opens a path, on Linux.
func Open(Config) (*Path, error) { return nil, errors.New("paths need Linux") }

// Available says why paths cannot be opened here.
func Available() string { return "paths need Linux" }

func (p *Path) start(_ int, cmd *exec.Cmd) error { return cmd.Start() }

// Counts returns what happened so far.
func (p *Path) Counts() Counts { return Counts{} }

// Close closes the path.
func (p *Path) Close() {}
