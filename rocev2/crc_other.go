//go:build !amd64 && (!arm64 || portable)

package rocev2

// haveKernel says whether updateWords is faster than the other ways.
const haveKernel = false

// updateWords is update for b whose length is a multiple of 4.
func updateWords(r uint32, b []byte) uint32 { return updateTables(r, b) }
