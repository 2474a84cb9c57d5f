package server

import (
	"sync"
	"time"
)

// logLimit bounds the lines of the log that strangers can cause: some at once,
// and then one a second. The list of problems counts all of them.
type logLimit struct {
	mu     sync.Mutex
	spent  time.Duration // of the burst, as the time that it takes to come back
	last   time.Time
	hidden uint64 // lines left out since the last one
}

const (
	logPause = time.Second
	logBurst = 100 * logPause
)

// allow reports whether there may be a line now, and how many were left out
// before it.
func (l *logLimit) allow(now time.Time) (hidden uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spent = max(l.spent-now.Sub(l.last), 0)
	l.last = now
	if l.spent > logBurst-logPause {
		l.hidden++
		return 0, false
	}
	l.spent += logPause
	hidden, l.hidden = l.hidden, 0
	return hidden, true
}
