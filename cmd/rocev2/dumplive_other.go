//go:build !linux

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/gosoftroce/rocev2/observe/dissect"
)

// live exists on Linux only.
type live struct{}

func openLive(_ context.Context, name string) (*live, error) {
	return nil, fmt.Errorf("capture on %s: rocev2 captures on Linux only, not on %s: tcpdump -i %[1]s -w - udp port 4791 | rocev2 dump -", name, runtime.GOOS)
}

// Next is never called.
func (*live) Next(*dissect.Frame) error { return io.EOF }

func (*live) report(io.Writer) error { return nil }
