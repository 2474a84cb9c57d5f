//go:build !linux || portable

package guard

import (
	"errors"
	"fmt"
	"os"
)

// NewSharedTable fails: only Linux shares a port among processes.
func NewSharedTable() (*Table, *os.File, error) {
	return nil, nil, fmt.Errorf("guard: memory for keys: %w", errors.ErrUnsupported)
}

// MapTable fails: only Linux shares a port among processes.
func MapTable(int) (*Table, error) {
	return nil, fmt.Errorf("guard: memory for keys: %w", errors.ErrUnsupported)
}
