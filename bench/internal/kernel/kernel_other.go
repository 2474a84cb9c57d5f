//go:build !linux

package kernel

import (
	"context"
	"errors"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
)

// Measure needs Linux.
func Measure(context.Context, Options) ([]cell.Row, error) {
	return nil, errors.New("kernel guests need Linux")
}
