//go:build !linux

package cm_test

import (
	"testing"
	"time"
)

func resident(b *testing.B, _ int) int {
	b.Helper()
	b.Skip("the memory of a process is read from /proc, which Linux has: run it there")
	return 0
}

func processorTime(b *testing.B, _ int) time.Duration {
	b.Helper()
	return 0
}
