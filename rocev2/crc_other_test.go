//go:build !amd64 && (!arm64 || portable)

package rocev2

// kernels are the ways of the vector kernel to fold.
func kernels() map[string]func(r uint32, b []byte) uint32 { return nil }
