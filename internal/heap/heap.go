// Package heap is a priority queue of values by time or any other ordered key.
package heap

import "cmp"

// Heap is a binary heap: the least key comes first, and of equal keys the one
// that was pushed first. The zero Heap is empty. Push allocates only when the
// heap outgrows what it has held since it was made or cleared. It is not safe
// for concurrent use.
type Heap[K cmp.Ordered, V any] struct {
	entries []entry[K, V]
	pushed  uint64
}

type entry[K cmp.Ordered, V any] struct {
	key   K
	order uint64 // of entries with one key
	value V
}

func (e *entry[K, V]) before(o *entry[K, V]) bool {
	return e.key < o.key || e.key == o.key && e.order < o.order
}

// Len returns the number of values.
func (h *Heap[K, V]) Len() int { return len(h.entries) }

// Min returns the least key, and false if the heap is empty.
func (h *Heap[K, V]) Min() (k K, ok bool) {
	if len(h.entries) == 0 {
		return k, false
	}
	return h.entries[0].key, true
}

// Push adds a value.
func (h *Heap[K, V]) Push(k K, v V) {
	e := entry[K, V]{key: k, order: h.pushed, value: v}
	h.pushed++
	h.entries = append(h.entries, e)
	i := len(h.entries) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h.entries[up]) {
			break
		}
		h.entries[i] = h.entries[up]
		i = up
	}
	h.entries[i] = e
}

// Pop removes the value with the least key and returns both. It panics if the
// heap is empty.
func (h *Heap[K, V]) Pop() (K, V) {
	first := h.entries[0]
	n := len(h.entries) - 1
	last := h.entries[n]
	h.entries[n] = entry[K, V]{} // what it refers to is not kept alive
	h.entries = h.entries[:n]
	if n > 0 {
		h.sink(last)
	}
	return first.key, first.value
}

// sink puts e in the place of the first entry, which is free, or further down.
func (h *Heap[K, V]) sink(e entry[K, V]) {
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h.entries) {
			break
		}
		if right := down + 1; right < len(h.entries) && h.entries[right].before(&h.entries[down]) {
			down = right
		}
		if !h.entries[down].before(&e) {
			break
		}
		h.entries[i] = h.entries[down]
		i = down
	}
	h.entries[i] = e
}

// Clear empties the heap and gives its memory back.
func (h *Heap[K, V]) Clear() { h.entries = nil }
