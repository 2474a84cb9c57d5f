package hca

import (
	"sync"
	"sync/atomic"
)

// WithHandler has f called when completions have come, and once when the queue
// is closed: open is then false. f runs on the goroutine that has received
// them, which wakes nobody, holds no lock, and waits for f. Calls never
// overlap. f polls the queue until it is empty; what comes meanwhile makes one
// more call.
func WithHandler(f func(open bool)) CQOption {
	return func(c *cqConfig) { c.handler = f }
}

// handlers has the queues whose handlers are to be called, when the shard's
// lock is given up.
type handlers struct {
	any atomic.Bool

	mu  sync.Mutex
	due []*CQ
}

// add has the handler of cq called. The caller holds a shard's lock.
func (h *handlers) add(cq *CQ) {
	if cq.handlerDue.Swap(true) {
		return
	}
	h.mu.Lock()
	h.due = append(h.due, cq)
	h.any.Store(true)
	h.mu.Unlock()
}

// run calls the handlers that are due. The caller holds no lock.
func (h *handlers) run() {
	for h.any.Load() {
		h.mu.Lock()
		last := len(h.due) - 1
		if last < 0 {
			h.mu.Unlock()
			return
		}
		cq := h.due[last]
		h.due[last], h.due = nil, h.due[:last]
		h.any.Store(last > 0)
		h.mu.Unlock()
		cq.handlerDue.Store(false)
		cq.callHandler()
	}
}

// callHandler calls the handler, unless another goroutine is at it: that one
// then calls it once more.
func (cq *CQ) callHandler() {
	if cq.handlerCalls.Add(1) > 1 {
		return
	}
	for seen := int32(1); ; seen = cq.handlerCalls.Load() {
		cq.config.handler(!cq.over())
		if cq.handlerCalls.CompareAndSwap(seen, 0) {
			return
		}
	}
}

// over reports whether the queue is closed.
func (cq *CQ) over() bool {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.closed
}
