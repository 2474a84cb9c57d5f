package hca

import "golang.org/x/sys/unix"

// yieldThread lets another thread have this processor if one waits for it. It
// takes long then, so the scheduler must know of it.
func yieldThread() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// yieldOften is yieldThread for who does so all the time. Go's scheduler does
// not know of it: else it would look after this thread every 20 µs.
func yieldOften() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
