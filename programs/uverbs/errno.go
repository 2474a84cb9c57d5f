//go:build linux

package uverbs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// errnoOf returns the error number for an error of hca or of the memory of a
// program.
func errnoOf(err error) abi.Errno {
	var errno abi.Errno
	var sys unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &sys):
		return abi.Errno(sys)
	case errors.Is(err, hca.ErrNoResources):
		return abi.ENOMEM
	case errors.Is(err, hca.ErrInUse), errors.Is(err, ib.ErrInUse):
		return abi.EBUSY
	case errors.Is(err, hca.ErrClosed):
		return abi.ENODEV
	}
	return abi.EINVAL
}
