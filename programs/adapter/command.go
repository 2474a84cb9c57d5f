//go:build linux && cgo

package main

import (
	"encoding/binary"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// mostCommand is how long a command may be.
const mostCommand = 1 << 16

// buffers are for commands: most are short.
var buffers = sync.Pool{New: func() any { b := make([]byte, 512); return &b }}

// command carries out what the program wrote to a file: the result of write(2),
// or a negative errno.
func command(f file, at unsafe.Pointer, n uint64) int64 {
	if n > mostCommand {
		return -int64(unix.EINVAL)
	}
	p := buffers.Get().(*[]byte)
	defer buffers.Put(p)
	b := *p
	if uint64(len(b)) < n {
		b = make([]byte, n)
	}
	b = b[:n]
	if readProgram(uint64(uintptr(at)), b) != nil {
		return -int64(unix.EFAULT)
	}
	r := f.command(b)
	if r.Errno != 0 {
		return -int64(r.Errno)
	}
	for _, made := range r.Files {
		binary.NativeEndian.PutUint32(r.Resp[made.Offset:], uint32(made.FD))
	}
	if err := respond(f, b, r.Resp); err != nil {
		for _, made := range r.Files {
			unix.Close(made.FD)
		}
		return -int64(unix.EFAULT)
	}
	return int64(r.N)
}

// respond writes the response to where the command says.
func respond(f file, b, resp []byte) error {
	at := f.response(b)
	if len(resp) == 0 || len(b) < at+8 {
		return nil
	}
	return writeProgram(binary.NativeEndian.Uint64(b[at:]), resp)
}

// responseOf returns where a command of verbs has the pointer to its response:
// after the header, except for MODIFY_SRQ, where it is in the driver's part.
func responseOf(b []byte) int {
	if binary.NativeEndian.Uint32(b) == uint32(abi.ModifySRQ) {
		return 24
	}
	return 8
}

// at returns memory of the program, which may not be there.
func memoryAt(addr uint64, n int) []byte {
	p := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}

// readProgram copies from the program's memory.
func readProgram(addr uint64, b []byte) (err error) {
	if !addressable(addr, len(b)) {
		return unix.EFAULT
	}
	defer memreg.Catch(debug.SetPanicOnFault(true), uintptr(addr), uint64(len(b)), &err)
	copy(b, memoryAt(addr, len(b)))
	return nil
}

// writeProgram copies to the program's memory.
func writeProgram(addr uint64, b []byte) (err error) {
	if !addressable(addr, len(b)) {
		return unix.EFAULT
	}
	defer memreg.Catch(debug.SetPanicOnFault(true), uintptr(addr), uint64(len(b)), &err)
	copy(memoryAt(addr, len(b)), b)
	return nil
}

// addressable reports whether a process can have memory there: the first page
// has none, and unsafe.Slice refuses nil.
func addressable(addr uint64, n int) bool {
	const first, most = 4096, uint64(^uintptr(0) >> 1)
	return n == 0 && addr != 0 || addr >= first && addr <= most-uint64(n)
}
