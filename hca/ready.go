package hca

// readyList is a queue of queue pairs that may have packets to send. A queue
// pair is in it at most once.
type readyList struct{ head, tail *QP }

func (l *readyList) empty() bool { return l.head == nil }
func (l *readyList) front() *QP  { return l.head }

func (l *readyList) push(q *QP) {
	if q.ready {
		return
	}
	q.ready = true
	q.nextReady = nil
	if l.tail == nil {
		l.head = q
	} else {
		l.tail.nextReady = q
	}
	l.tail = q
}

func (l *readyList) pop() {
	q := l.head
	l.head = q.nextReady
	if l.head == nil {
		l.tail = nil
	}
	q.ready, q.nextReady = false, nil
}

// rotate moves the front to the back.
func (l *readyList) rotate() {
	if q := l.head; q != l.tail {
		l.pop()
		l.push(q)
	}
}

// remove takes out a queue pair wherever it stands. It is rare (a queue pair
// closes), so it walks.
func (l *readyList) remove(q *QP) {
	if !q.ready {
		return
	}
	for n, first := l.len(), l.head; n > 0; n, first = n-1, l.head {
		l.pop()
		if first != q {
			l.push(first)
		}
	}
}

func (l *readyList) len() int {
	n := 0
	for q := l.head; q != nil; q = q.nextReady {
		n++
	}
	return n
}
