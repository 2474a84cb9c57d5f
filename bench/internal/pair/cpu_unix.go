//go:build unix

package pair

import (
	"syscall"
	"time"
)

// cpuTime returns what the process has used of the processors, 0 if it is not
// known.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
