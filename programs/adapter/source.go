//go:build linux && cgo

package main

// init uses what the build has set, so that it stays in the library: the tool
// that carries the library looks for it there.
func init() {
	if source == "" {
		source = "unknown"
	}
}
