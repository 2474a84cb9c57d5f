package qptest

import (
	"encoding/binary"
	"unsafe"
)

// alignedBytes returns n bytes that start at a multiple of 8, as memory for
// atomics must.
func alignedBytes(n int) []byte {
	words := make([]uint64, (n+7)/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)[:n:n]
}

// Atomics hold their value in the byte order of the machine.
func nativeLoad(b []byte) uint64     { return binary.NativeEndian.Uint64(b) }
func nativeStore(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
