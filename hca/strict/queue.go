package strict

// Queue is a queue whose memory is of the order of what is in it. The zero
// value is empty.
type Queue[T any] struct {
	items []T
	head  int
}

// Len returns how many there are.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push adds one at the end.
func (q *Queue[T]) Push(v T) { q.items = append(q.items, v) }

// Pop takes the first one; ok is false if there is none.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.Len() == 0 {
		return v, false
	}
	var none T
	v, q.items[q.head] = q.items[q.head], none
	if q.head++; 2*q.head >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return v, true
}

// DropLast takes away the last one, if there is one, and returns it.
func (q *Queue[T]) DropLast() (v T, ok bool) {
	if q.Len() == 0 {
		return v, false
	}
	var none T
	last := len(q.items) - 1
	v, q.items[last] = q.items[last], none
	q.items = q.items[:last]
	return v, true
}
