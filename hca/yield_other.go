//go:build !linux

package hca

// yieldThread lets another thread have this processor. There is no call for
// that which all systems have; they take it from who uses it for long.
func yieldThread() {}
