package main

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inheritance is what a process has from the one that started it, and what a
// program that it becomes would not have. Signals that are ignored are known
// here only of those that Go's runtime leaves so: the interrupt and the
// hang-up.
type inheritance struct {
	ignored []os.Signal
	death   int // the signal for the end of the parent; of a thread
	parent  int
}

// started is of this process: variables are made on its first thread.
var started = inherited()

func inherited() (i inheritance) {
	for s := syscall.Signal(1); s < 65; s++ {
		if signal.Ignored(s) {
			i.ignored = append(i.ignored, s)
		}
	}
	var death int32
	if unix.Prctl(unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&death)), 0, 0, 0) == nil {
		i.death = int(death)
	}
	i.parent = os.Getppid()
	return i
}

// restore prepares this thread for exec.
func (i inheritance) restore() {
	if len(i.ignored) > 0 { // none would mean all
		signal.Ignore(i.ignored...)
	}
	if i.death == 0 {
		return
	}
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(i.death), 0, 0, 0)
	if os.Getppid() != i.parent { // it has ended meanwhile
		_ = unix.Kill(os.Getpid(), syscall.Signal(i.death))
	}
}
