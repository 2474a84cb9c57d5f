// Package testshort shrinks tests that repeat something, where go test -short
// asks for it: at each save, and under emulation.
package testshort

import "testing"

// Rounds returns n, or a fifth of it with -short.
func Rounds[N ~int | ~uint64](n N) N {
	if testing.Short() {
		return max(1, n/5)
	}
	return n
}
