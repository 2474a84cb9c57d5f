package hca

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// handlers has what is to be called when the shard's lock is given up: the
// handlers of completion queues, and what Later has brought.
type handlers struct {
	any atomic.Bool
	ran atomic.Bool // a handler has run since the receiver has looked

	mu  sync.Mutex
	due []runner
}

// runner is a completion queue with a handler, or what Later has brought.
type runner interface{ run() }

// add has r run. The caller holds a shard's lock.
func (h *handlers) add(r runner) {
	h.mu.Lock()
	h.due = append(h.due, r)
	h.any.Store(true)
	h.mu.Unlock()
}

// run calls what is due. The caller holds no lock.
func (h *handlers) run() {
	for h.any.Load() {
		h.mu.Lock()
		last := len(h.due) - 1
		if last < 0 {
			h.mu.Unlock()
			return
		}
		r := h.due[last]
		h.due[last], h.due = nil, h.due[:last]
		h.any.Store(last > 0)
		h.mu.Unlock()
		r.run()
	}
}

// letRun lets the goroutines run that a handler has woken. They run on the
// receiver's thread at once. Otherwise another thread would have to be woken
// for them, while this one goes to sleep in the link.
func (h *handlers) letRun() {
	if h.ran.Swap(false) {
		runtime.Gosched()
	}
}

type later func()

func (f later) run() { f() }
