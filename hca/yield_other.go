//go:build !linux

package hca

// yieldThread lets another thread have this processor. No call for that exists
// on all systems; they take the processor from a thread that uses it for long.
func yieldThread() {}
