package hca

// qpLists are the queues that a queue pair may stand in, in each at most once.
const (
	listReady   = iota // it may have packets to send
	listRest           // it has had a turn and may have more
	listStopped        // its peer's limit has stopped it
	listDelayed        // it has an acknowledgement to send that can wait
	qpLists
)

// qpLink is a queue pair's place in one of them.
type qpLink struct {
	next *QP
	in   bool
}

// qpList is a queue of queue pairs; kind says which.
type qpList struct {
	head, tail *QP
	kind       int
}

func (l *qpList) empty() bool { return l.head == nil }
func (l *qpList) front() *QP  { return l.head }

func (l *qpList) push(q *QP) {
	k := &q.links[l.kind]
	if k.in {
		return
	}
	*k = qpLink{in: true}
	if l.tail == nil {
		l.head = q
	} else {
		l.tail.links[l.kind].next = q
	}
	l.tail = q
}

// pop takes out the front and returns it.
func (l *qpList) pop() *QP {
	q := l.head
	l.head = q.links[l.kind].next
	if l.head == nil {
		l.tail = nil
	}
	q.links[l.kind] = qpLink{}
	return q
}

// rotate moves the front to the back.
func (l *qpList) rotate() {
	if l.head != l.tail {
		l.push(l.pop())
	}
}

// remove takes out a queue pair wherever it stands. It is rare (a queue pair
// closes), so it walks.
func (l *qpList) remove(q *QP) {
	if !q.links[l.kind].in {
		return
	}
	for n := l.len(); n > 0; n-- {
		if first := l.pop(); first != q {
			l.push(first)
		}
	}
}

func (l *qpList) len() int {
	n := 0
	for q := l.head; q != nil; q = q.links[l.kind].next {
		n++
	}
	return n
}
