//go:build !linux

package strangers

import (
	"context"
	"errors"
)

// ListenEnv is set in the process that is the victim of package rdma.
const ListenEnv = "ROCEATTACK_LISTEN"

// Listen is that victim.
func Listen(context.Context) error { return errLinux }

// Run attacks, on Linux.
func Run(context.Context, string, bool, func(string)) ([]Result, error) { return nil, errLinux }

var errLinux = errors.New("strangers are forged on Linux only")
