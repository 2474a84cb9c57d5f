package agent

// queue is first in, first out. It keeps its memory, unless that was for a
// burst.
type queue[T any] struct {
	items []T
	first int
}

const keptItems = 256

func (q *queue[T]) push(v T) {
	if len(q.items) == cap(q.items) && q.first > len(q.items)/2 {
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) len() int { return len(q.items) - q.first }

func (q *queue[T]) pop() (v T, ok bool) {
	if q.first == len(q.items) {
		return v, false
	}
	var zero T
	v, q.items[q.first] = q.items[q.first], zero
	if q.first++; q.first == len(q.items) {
		q.first = 0
		q.items = q.items[:0]
		if cap(q.items) > keptItems {
			q.items = nil
		}
	}
	return v, true
}
