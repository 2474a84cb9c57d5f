//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNoPrograms = errors.New("unmodified verbs programs run on Linux only: libibverbs speaks to Linux's kernel")

func runProgram(context.Context, streams, programFlags, []string) error { return errNoPrograms }

func servePrograms(context.Context, streams, programFlags) error { return errNoPrograms }
