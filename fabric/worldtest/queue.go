package worldtest

// queue is a queue that grows by doubling. The buffers of its port bound it.
type queue[T any] struct {
	ring  []T
	head  int
	count int
}

func (q *queue[T]) len() int { return q.count }

// first returns the oldest element, which is there.
func (q *queue[T]) first() *T { return &q.ring[q.head] }

func (q *queue[T]) put(v T) {
	if q.count == len(q.ring) {
		grown := make([]T, max(16, 2*len(q.ring)))
		n := copy(grown, q.ring[q.head:])
		copy(grown[n:], q.ring[:q.head])
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.count)&(len(q.ring)-1)] = v
	q.count++
}

// take removes the oldest element, which is there.
func (q *queue[T]) take() T {
	v := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.count--
	return v
}
