//go:build linux

package ucma

import (
	"fmt"
	"sync/atomic"
	"syscall"
)

// signal is a pipe that is readable while it is set.
type signal struct {
	file  int // for the program, which closes it
	read  int // the same end of the pipe, with flags that the program cannot change
	write int
	set   bool
	count atomic.Uint64 // how often it was set
}

func newSignal() (*signal, error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("ucma: make a pipe: %w", err)
	}
	s := &signal{file: p[0], write: p[1]}
	var err error
	s.read, err = syscall.Open(fmt.Sprintf("/proc/self/fd/%d", p[0]), syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		syscall.Close(s.file)
		syscall.Close(s.write)
		return nil, fmt.Errorf("ucma: open a pipe again: %w", err)
	}
	return s, nil
}

// show makes the pipe readable, or not.
func (s *signal) show(on bool) {
	if on == s.set {
		return
	}
	s.set = on
	if on {
		s.count.Add(1)
		_, _ = syscall.Write(s.write, []byte{1}) // it is empty
		return
	}
	// Once: the program may have read it itself, or go on filling the pipe.
	_, _ = syscall.Read(s.read, make([]byte, 1<<16))
}

func (s *signal) close() {
	syscall.Close(s.read)
	syscall.Close(s.write)
}
