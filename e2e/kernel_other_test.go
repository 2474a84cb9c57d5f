//go:build !linux

package e2e

import "testing"

func TestKernelMatrix(t *testing.T) { t.Skip("kernel guests need a Linux host: run it there") }
