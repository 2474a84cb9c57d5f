//go:build !linux || portable

package leases

import (
	"context"
	"errors"

	"github.com/gosoftroce/rocev2/e2e/attack"
)

// ChildEnv is set in a process that is a leaseholder to be stopped or killed.
const ChildEnv = "ROCEATTACK_LEASE"

type trial struct{}

var errLinux = errors.New("a port is shared on Linux only")

// Child is that leaseholder.
func Child(context.Context) error { return errLinux }

// All returns every attack: there is none.
func All() []Attack { return nil }

// Run attacks, on Linux.
func (a *Attack) Run(context.Context, Options) (attack.Result, error) {
	return attack.Result{Name: a.Name, What: a.What, Must: a.Must}, errLinux
}
