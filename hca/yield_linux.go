package hca

import "golang.org/x/sys/unix"

// yieldThread lets another thread have this processor if one waits for it. It
// takes long then, so the scheduler must know of it.
func yieldThread() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
