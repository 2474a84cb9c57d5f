//go:build linux && cgo

package main

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pollFD is struct pollfd.
type pollFD struct {
	fd              int32
	events, revents int16
}

// waits are those between beginWait and endWait. Another thread may close the
// file meanwhile: that ends no wait, and the device may have other files.
var waits = struct {
	sync.Mutex
	of map[waitKey]wait
}{of: map[waitKey]wait{}}

// waitKey is a thread and the handle of a file.
type waitKey struct {
	thread uint64 // its number in the program
	handle uint64
}

type wait struct {
	device   *device
	receives bool
}

// beginWait is rocev2_wait_begin.
func beginWait(handle uint64, fds []pollFD, timeout *int64, thread uint64) (n int) {
	f := handles.get(handle)
	if f == nil {
		return 0
	}
	d := f.waitsFor()
	if d == nil {
		return 0
	}
	if f, ok := f.(*verbsFile); ok {
		f.client.PostLeft()
	}
	var over func() bool
	if *timeout != 0 {
		before := f.news()
		over = func() bool { return f.news() != before }
	}
	var room [8]int
	list, most, receives := d.core.Program().BeginWait(room[:0], over)
	waits.Lock()
	waits.of[waitKey{thread, handle}] = wait{d, receives}
	waits.Unlock()
	if !receives {
		return 0
	}
	for _, fd := range list {
		if n < len(fds) {
			fds[n] = pollFD{fd: int32(fd), events: unix.POLLIN}
			n++
		}
	}
	switch {
	case n == 0 || n < len(list):
		*timeout = 0
	case most > 0 && (*timeout < 0 || time.Duration(*timeout) > most):
		*timeout = int64(most)
	}
	return n
}

// endWait is rocev2_wait_end.
func endWait(handle, thread uint64) {
	key := waitKey{thread, handle}
	waits.Lock()
	w := waits.of[key]
	delete(waits.of, key)
	waits.Unlock()
	if w.device != nil {
		w.device.core.Program().EndWait(w.receives)
	}
}
