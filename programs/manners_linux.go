package programs

import (
	"runtime"
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

// warn logs what a program has caused.
func (h *Host) warn(text string, p Peer, args ...any) {
	hidden, ok := h.logged.Allow(time.Now())
	if !ok {
		return
	}
	args = append([]any{"pid", p.PID, "uid", p.UID}, args...)
	if hidden > 0 {
		args = append(args, "left_out", hidden)
	}
	h.log.Warn(text, args...)
}
