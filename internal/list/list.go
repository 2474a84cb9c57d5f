// Package list is a doubly linked list whose elements are fields of what stands
// in it, so that nothing is allocated and anything is taken out at once.
package list

// Element is the place of a value in a list: a field of the value, one for each
// list in which it may stand at a time. Value, which points to the value, is
// set before the first use. An Element must not be copied while it is in a
// list.
type Element[T any] struct {
	Value      *T
	next, prev *Element[T] // nil: in none
}

// In reports whether the element is in a list.
func (e *Element[T]) In() bool { return e.next != nil }

// Next returns the value after that of e, which is in a list; nil if e is the
// last.
func (e *Element[T]) Next() *T { return e.next.Value }

// List is a list. The zero List is empty and ready to use. It must not be
// copied after that, and is not safe for concurrent use.
type List[T any] struct {
	root Element[T] // between the last and the first one, without a value
	n    int
}

// Len returns the number of elements.
func (l *List[T]) Len() int { return l.n }

// Front returns the first value, nil if there is none.
func (l *List[T]) Front() *T {
	if l.n == 0 {
		return nil
	}
	return l.root.next.Value
}

// Back returns the last value, nil if there is none.
func (l *List[T]) Back() *T {
	if l.n == 0 {
		return nil
	}
	return l.root.prev.Value
}

// PushBack adds an element, which is in no list, after all others.
func (l *List[T]) PushBack(e *Element[T]) {
	if l.root.next == nil {
		l.root.next, l.root.prev = &l.root, &l.root
	}
	l.insert(e, l.root.prev)
}

// PushFront adds an element, which is in no list, before all others.
func (l *List[T]) PushFront(e *Element[T]) {
	if l.root.next == nil {
		l.root.next, l.root.prev = &l.root, &l.root
	}
	l.insert(e, &l.root)
}

func (l *List[T]) insert(e, after *Element[T]) {
	e.prev, e.next = after, after.next
	e.next.prev, after.next = e, e
	l.n++
}

// PopFront takes out the first element of a list that is not empty, and returns
// its value.
func (l *List[T]) PopFront() *T {
	e := l.root.next
	l.Remove(e)
	return e.Value
}

// Remove takes out an element of the list.
func (l *List[T]) Remove(e *Element[T]) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.next, e.prev = nil, nil
	l.n--
}
