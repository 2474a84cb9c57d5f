// Package loglimit bounds the lines of a log that strangers can cause.
package loglimit

import (
	"sync"
	"time"
)

// Limit lets some lines pass at once, and then one a second. Its methods may be
// called from any goroutine.
type Limit struct {
	mu     sync.Mutex
	spent  time.Duration // of the burst, as the time that it takes to come back
	last   time.Time
	hidden uint64 // lines left out since the last one
}

const (
	pause = time.Second
	burst = 100 * pause
)

// Allow reports whether there may be a line now, and how many were left out
// before it.
func (l *Limit) Allow(now time.Time) (hidden uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spent = max(l.spent-now.Sub(l.last), 0)
	l.last = now
	if l.spent > burst-pause {
		l.hidden++
		return 0, false
	}
	l.spent += pause
	hidden, l.hidden = l.hidden, 0
	return hidden, true
}
