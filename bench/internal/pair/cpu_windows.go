package pair

import (
	"syscall"
	"time"
)

// cpuTime returns what the process has used of the processors, 0 if it is not
// known.
func cpuTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0
	}
	var began, ended, kernel, user syscall.Filetime
	if syscall.GetProcessTimes(self, &began, &ended, &kernel, &user) != nil {
		return 0
	}
	const unit = 100 * time.Nanosecond
	ticks := func(f syscall.Filetime) time.Duration {
		return time.Duration(int64(f.HighDateTime)<<32 | int64(f.LowDateTime))
	}
	return unit * (ticks(kernel) + ticks(user))
}
