//go:build !linux

package kernel

import (
	"context"
	"errors"

	"github.com/gosoftroce/rocev2/bench/internal/cell"
	"github.com/gosoftroce/rocev2/bench/internal/path"
)

const needsLinux = "kernel guests need Linux"

// Measure needs Linux.
func Measure(context.Context, Options) ([]cell.Row, error) {
	return nil, errors.New(needsLinux)
}

// OverPath needs Linux.
func OverPath(path.Config, string, int, int) func(context.Context, cell.Window) cell.Sample {
	return func(context.Context, cell.Window) cell.Sample { return cell.Failed(errors.New(needsLinux)) }
}

// Available says why guests cannot be booted here.
func Available() string { return needsLinux }

// EndGuests ends the guests that OverPath has booted.
func EndGuests() error { return nil }
