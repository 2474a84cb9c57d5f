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

// waiting says which thread receives for a device.
type waiting struct {
	mu       sync.Mutex
	receiver uint64 // its number; 0: none of the program's does
}

// beginWait is rocev2_wait_begin.
func beginWait(f file, fds []pollFD, timeout *int64, thread uint64) (n int) {
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
	list, most, receives := d.core.BeginWait(room[:0], over)
	if !receives {
		return 0
	}
	d.waiting.begin(thread)
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
func endWait(f file, thread uint64) {
	if d := f.waitsFor(); d != nil {
		d.core.EndWait(d.waiting.end(thread))
	}
}

func (w *waiting) begin(thread uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.receiver = thread
}

// end reports whether this thread is the one that receives.
func (w *waiting) end(thread uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.receiver != thread {
		return false
	}
	w.receiver = 0
	return true
}
