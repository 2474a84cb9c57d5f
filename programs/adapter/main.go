//go:build linux && cgo

// Command adapter is a library for programs in C (-buildmode=c-shared): the
// devices that an unmodified verbs program opens, in its own process. The
// preloaded library (programs/preload) loads it when the program opens a device
// file, and calls it for what the kernel does otherwise: commands, doorbells,
// waiting. Its interface is programs/preload/adapter.h.
//
// It trusts no pointer that a command has, and no byte of a ring. What the
// program does wrong is an errno or a completion.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../preload
#define ROCEV2_ADAPTER_TYPES
#include "adapter.h"

void rocev2_forget(void);
*/
import "C"

import (
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// source says which source the preloaded library is of that this one goes with.
// The build sets it, and the tool that carries the library looks for it there.
var source string

func main() {}

func init() {
	if source == "" { // it is used, so that it stays
		source = "unknown"
	}
	ownFiles.begin()
}

// settle gives back pages of the library's file that only its start has needed.
var settle = sync.OnceFunc(func() { C.rocev2_forget() })

// errno is the result of a call for an error number.
func errno(e unix.Errno) C.int64_t { return -C.int64_t(e) }

//export rocev2_version
func rocev2_version() C.int64_t {
	return C.ROCEV2_ADAPTER_VERSION
}

//export rocev2_open
func rocev2_open(node *C.char, flags C.int32_t, out *C.struct_rocev2_opened) C.int64_t {
	path := C.GoString(node)
	open := openVerbs
	if filepath.Base(path) == cmNode {
		open = openCM
	}
	f, fd, err := open(path, int(flags))
	if err != nil {
		say("open " + path + ": " + err.Error())
		return errno(errnoOf(err))
	}
	handle, e := handles.enter(f, fd)
	if e != 0 {
		return errno(e)
	}
	out.handle, out.fd, out.doorbells = C.uint64_t(handle), C.int32_t(fd), C.uint64_t(f.doorbells())
	if v, ok := f.(*verbsFile); ok && v.client.TellsPolls() {
		out.flags |= C.ROCEV2_TELL_POLLS
	}
	if v, ok := f.(*verbsFile); ok && v.client.RefusesChildren() {
		out.flags |= C.ROCEV2_REFUSE_CHILD
	}
	settle()
	return 0
}

//export rocev2_close
func rocev2_close(handle, inode C.uint64_t) C.int64_t {
	if inode != 0 {
		if f, ok := handles.get(uint64(handle)).(*verbsFile); ok {
			f.client.CloseEvents(uint64(inode))
		}
		return 0
	}
	if f := handles.take(uint64(handle)); f != nil {
		f.close()
	}
	return 0
}

//export rocev2_command
func rocev2_command(handle C.uint64_t, buf unsafe.Pointer, n C.uint64_t) C.int64_t {
	f := handles.get(uint64(handle))
	if f == nil {
		return errno(unix.EBADF)
	}
	return C.int64_t(command(f, buf, uint64(n)))
}

//export rocev2_post
func rocev2_post(handle C.uint64_t, qp C.uint32_t) C.int64_t {
	f, ok := handles.get(uint64(handle)).(*verbsFile)
	if !ok {
		return errno(unix.EBADF)
	}
	f.core.Program().Posts()
	return -C.int64_t(f.client.Post(uint32(qp)))
}

//export rocev2_poll
func rocev2_poll(handle C.uint64_t) C.int64_t {
	f, ok := handles.get(uint64(handle)).(*verbsFile)
	switch {
	case !ok:
		return errno(unix.EBADF)
	case f.poll():
		return 1
	case f.core.Failed():
		return errno(unix.EIO)
	}
	return 0
}

//export rocev2_polled
func rocev2_polled(handle C.uint64_t, cq C.uint32_t) C.int64_t {
	f, ok := handles.get(uint64(handle)).(*verbsFile)
	if !ok {
		return errno(unix.EBADF)
	}
	f.client.Polled(uint32(cq))
	return 0
}

//export rocev2_wait_begin
func rocev2_wait_begin(handle C.uint64_t, fds *C.struct_pollfd, room C.int32_t, timeout *C.int64_t, thread C.uint64_t) C.int64_t {
	list := unsafe.Slice((*pollFD)(unsafe.Pointer(fds)), max(room, 0))
	return C.int64_t(beginWait(uint64(handle), list, (*int64)(timeout), uint64(thread)))
}

//export rocev2_wait_end
func rocev2_wait_end(handle, thread C.uint64_t) C.int64_t {
	endWait(uint64(handle), uint64(thread))
	return 0
}

//export rocev2_descriptors
func rocev2_descriptors(fds *C.int32_t, room C.int32_t) C.int64_t {
	list := unsafe.Slice((*int32)(fds), max(room, 0))
	n := 0
	for _, fd := range ownFiles.list() {
		if n < len(list) {
			list[n] = int32(fd)
			n++
		}
	}
	return C.int64_t(n)
}

//export rocev2_farewell
func rocev2_farewell() C.int64_t {
	farewell()
	return 0
}
