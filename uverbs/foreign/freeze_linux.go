package foreign

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process that exchanges pages of its memory for others with the same
// contents loses what its other threads write meanwhile. So these are stopped
// for that time, by ptrace: a thread that is stopped so is not in the middle of
// a system call, and does not keep pages that the kernel writes to. One that
// waits in the kernel for what it cannot be woken from (a disk, a child of
// vfork) does not stop, and then nothing is exchanged.
//
// A system call that was interrupted starts again, as after SIGSTOP and
// SIGCONT. The few that do not, such as epoll_wait, end with EINTR.

// Limits of a freeze: for how long threads are waited for, and how many.
const (
	freezeTime = 200 * time.Millisecond
	maxThreads = 1024
)

// Freeze stops all threads of the process but one, whose number the process
// says, until thaw is called. The process must be of the user of this one.
// Nothing is stopped, or not for long, where the error is not nil.
func (s *Space) Freeze(except int) (thaw func(), err error) {
	if !s.trusted || s.pidfd < 0 || s.copier != nil {
		return nil, fmt.Errorf("threads of process %d: %w", s.pid, unix.EPERM)
	}
	if !s.acquire() {
		return nil, errClosed
	}
	z := freezer{space: s, except: except, deadline: time.Now().Add(freezeTime)}
	stopped, end, gone := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread() // who traces is a thread
		defer runtime.UnlockOSThread()
		err := z.stop()
		if err == nil && !s.Alive() {
			err = os.ErrProcessDone
		}
		stopped <- err
		<-end
		z.release()
		s.Close()
	}()
	if err := <-stopped; err != nil {
		close(end) // a thread that has not stopped is left when it does
		return nil, fmt.Errorf("threads of process %d: %w", s.pid, err)
	}
	return sync.OnceFunc(func() {
		close(end)
		<-gone
	}), nil
}

// freezer has stopped threads, or is about to.
type freezer struct {
	space    *Space
	except   int
	deadline time.Time
	threads  []thread
}

// thread is one that is traced.
type thread struct {
	id      int
	stopped bool
	signal  unix.Signal // that it was about to get
}

// stop returns when all threads are stopped.
func (z *freezer) stop() error {
	if err := z.same(); err != nil {
		return err
	}
	for {
		more, err := z.seize()
		if err != nil {
			return err
		}
		if waiting := z.collect(); !more && !waiting {
			return nil // and nobody is there who could start others
		}
		if time.Now().After(z.deadline) {
			return unix.ETIMEDOUT
		}
		pause()
	}
}

// same reports whether threads have the numbers here that they have there.
func (z *freezer) same() error {
	text, err := os.ReadFile(z.space.path(fmt.Sprintf("task/%d/status", z.except)))
	if err != nil {
		return unix.ESRCH
	}
	_, rest, ok := bytes.Cut(text, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if ok && len(bytes.Fields(line)) != 1 {
		return fmt.Errorf("%w: it is in another PID namespace", unix.EPERM)
	}
	return nil
}

// seize traces threads that are not traced yet, and reports whether there were
// any.
func (z *freezer) seize() (more bool, err error) {
	dir, err := os.Open(z.space.path("task"))
	if err != nil {
		return false, gone(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false, gone(err)
	}
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil || id == z.except || z.has(id) {
			continue
		}
		if len(z.threads) == maxThreads {
			return false, unix.E2BIG
		}
		switch err := unix.PtraceSeize(id); err {
		case unix.ESRCH: // it has ended
			continue
		case nil:
		default: // of another tracer, or of the kernel
			return false, err
		}
		more = true
		z.threads = append(z.threads, thread{id: id})
		unix.PtraceInterrupt(id) //nolint:errcheck // one that has ended is noticed when it is waited for
	}
	return more, nil
}

func (z *freezer) has(id int) bool {
	for i := range z.threads {
		if z.threads[i].id == id {
			return true
		}
	}
	return false
}

// collect takes note of threads that have stopped, and reports whether others
// have not.
func (z *freezer) collect() (waiting bool) {
	for i := 0; i < len(z.threads); i++ {
		t := &z.threads[i]
		if t.stopped {
			continue
		}
		ended := t.wait(unix.WNOHANG)
		if ended {
			z.threads[i] = z.threads[len(z.threads)-1]
			z.threads = z.threads[:len(z.threads)-1]
			i--
			continue
		}
		waiting = waiting || !t.stopped
	}
	return waiting
}

// wait looks whether a thread has stopped, or has ended.
func (t *thread) wait(options int) (ended bool) {
	const traced = 0x40000000 // __WALL: threads, too
	var status unix.WaitStatus
	id, err := unix.Wait4(t.id, &status, options|traced, nil)
	for err == unix.EINTR {
		id, err = unix.Wait4(t.id, &status, options|traced, nil)
	}
	switch {
	case err != nil:
		return true
	case id == 0:
		return false
	case !status.Stopped():
		return true
	}
	t.stopped = true
	if status>>16 == 0 { // and not an event of ptrace
		t.signal = status.StopSignal()
	}
	return false
}

// release lets all threads go on. One that has ended stays until who traces it
// has waited for it. The first of a process ends when the others are gone, so
// it comes last.
func (z *freezer) release() {
	if i := slices.IndexFunc(z.threads, func(t thread) bool { return t.id == z.space.pid }); i >= 0 {
		first := z.threads[i]
		z.threads = append(slices.Delete(z.threads, i, i+1), first)
	}
	z.threads = slices.DeleteFunc(z.threads, func(t thread) bool { return t.stopped && t.detach() })
	for i := range z.threads {
		for t := &z.threads[i]; !t.wait(0) && !t.detach(); {
		}
	}
}

// detach lets a thread go on, with the signal that it was about to get. It
// reports whether the thread was still stopped.
func (t *thread) detach() bool {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(t.id), 0, uintptr(t.signal), 0, 0)
	return errno == 0
}

// pause waits for a moment.
func pause() {
	t := unix.NsecToTimespec(int64(20 * time.Microsecond))
	unix.Syscall6(unix.SYS_PPOLL, 0, 0, uintptr(unsafe.Pointer(&t)), 0, 0, 0)
}
