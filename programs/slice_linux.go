package programs

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// slice is for how long the threads of the daemon want the processor at a time.
const slice = 100 * time.Microsecond

// preferWakeups asks the scheduler to let threads of this process run soon when
// they wake, and in turn for a short while only. Programs that poll memory or
// completion queues keep the processor, and where they have all of them, each
// message would wait for the end of a slice of milliseconds. It needs no
// privilege. Before Linux 6.12 it has no effect.
func preferWakeups() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks { // threads to come inherit it
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil || attr.Policy != unix.SCHED_NORMAL && attr.Policy != unix.SCHED_BATCH {
			continue
		}
		attr.Runtime = uint64(slice)
		_ = unix.SchedSetAttr(tid, attr, 0)
	}
}
