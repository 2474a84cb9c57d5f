package adapter

import "github.com/gosoftroce/rocev2/fabric/event"

// At has f called at this host at a time, rounded up to whole nanoseconds: what
// a program does there when it has computed. Calls of one time keep the order
// in which At was called. It may be called by what runs at this host, and
// between two events of the network. f may do what Request.Done may.
func (h *Host) At(at event.Time, f func()) {
	at = max(at, h.Now()) + event.Nanosecond - 1
	h.tasks.Push(at-at%event.Nanosecond, f)
	h.arm()
}

// runTasks calls what is due.
func (h *Host) runTasks(now event.Time) {
	for at, ok := h.tasks.Min(); ok && at <= now; at, ok = h.tasks.Min() {
		_, f := h.tasks.Pop()
		f()
	}
}
