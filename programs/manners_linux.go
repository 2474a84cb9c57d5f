package programs

import (
	"runtime"
	"sync"
	"time"
)

// turns bounds how many commands of a user are carried out at once: they are
// carried out on the daemon's time, and not on the user's.
type turns chan struct{}

// turnsOf returns those of a user; nil is without a bound. The host is locked.
func (h *Host) turnsOf(uid uint32) turns {
	if trusted(uid) {
		return h.turns[uid]
	}
	t := h.turns[uid]
	if t == nil {
		t = make(turns, max(1, runtime.GOMAXPROCS(0)/2))
		h.turns[uid] = t
	}
	return t
}

func (t turns) begin() {
	if t != nil {
		t <- struct{}{}
	}
}

func (t turns) end() {
	if t != nil {
		<-t
	}
}

// What programs can have logged: some lines at once, and then one in a while.
const (
	logPause = time.Second
	logBurst = 100 * logPause
)

// logLimit bounds the lines of the log that programs can cause.
type logLimit struct {
	mu     sync.Mutex
	spent  time.Duration // of the burst, as the time that it takes to come back
	last   time.Time
	hidden uint64 // lines left out since the last one
}

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

// warn logs what a program has caused.
func (h *Host) warn(text string, p Peer, args ...any) {
	hidden, ok := h.logged.allow(time.Now())
	if !ok {
		return
	}
	args = append([]any{"pid", p.PID, "uid", p.UID}, args...)
	if hidden > 0 {
		args = append(args, "left_out", hidden)
	}
	h.log.Warn(text, args...)
}
