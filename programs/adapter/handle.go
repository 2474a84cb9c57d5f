//go:build linux && cgo

package main

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
)

// file is an open device file.
type file interface {
	command(b []byte) abi.Reply
	response(b []byte) (at int) // where b has the pointer to its response
	waitsFor() *device          // whose completions wake the threads that wait for the file
	news() uint64               // changes when there is an event
	doorbells() uintptr         // struct rocev2_doorbells; 0: it has none
	files() []int               // that it has for itself
	close()
}

// handles are the open device files. A handle counts up, so that one of a file
// that is closed is none of another.
var handles table

// table has files by their handles: the lower bits are the index.
type table struct {
	mu    sync.Mutex
	count uint64
	slots [mostFiles]atomic.Pointer[slot]
}

// mostFiles is how many device files a process has open.
const mostFiles = 1024

type slot struct {
	handle uint64
	file   file
}

// add enters a file; 0: there are too many.
func (t *table) add(f file) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range mostFiles {
		t.count++
		s := &t.slots[t.count%mostFiles]
		if s.Load() == nil {
			s.Store(&slot{t.count, f})
			return t.count
		}
	}
	return 0
}

// enter enters a file with the number that the program gets for it. Where there
// are too many files it closes both.
func (t *table) enter(f file, fd int) (handle uint64, err unix.Errno) {
	if handle = t.add(f); handle == 0 {
		unix.Close(fd)
		f.close()
		return 0, unix.EMFILE
	}
	return handle, 0
}

// get returns the file of a handle, or nil.
func (t *table) get(handle uint64) file {
	if s := t.slots[handle%mostFiles].Load(); s != nil && s.handle == handle {
		return s.file
	}
	return nil
}

// take returns the file of a handle, which stands for nothing from now on.
func (t *table) take(handle uint64) file {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.get(handle)
	if f != nil {
		t.slots[handle%mostFiles].Store(nil)
	}
	return f
}

// all returns every file.
func (t *table) all() (list []file) {
	for i := range t.slots {
		if s := t.slots[i].Load(); s != nil {
			list = append(list, s.file)
		}
	}
	return list
}
