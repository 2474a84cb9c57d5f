package adapter

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns how long the calling thread has run: on a busy machine it
// says what work costs, where the clock on the wall does not.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
