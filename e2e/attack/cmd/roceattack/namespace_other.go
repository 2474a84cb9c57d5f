//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func namespaced() (*exec.Cmd, error) {
	return nil, errors.New("network namespaces are used on Linux only")
}

func loopbackUp() error { return nil }
