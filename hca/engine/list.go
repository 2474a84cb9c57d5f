package engine

// The queues that a queue pair may stand in, in each at most once.
const (
	listFresh   = iota // it has just come to have packets to send
	listRound          // it has had a turn and may have more
	listLimited        // its peer's limit has stopped it
	listDelayed        // it has an acknowledgement to send that can wait
	numLists
)

// links are a queue pair's places in them.
type links struct {
	next [numLists]*QP
	in   [numLists]bool
}

// list is a queue of queue pairs; kind says which.
type list struct {
	head, tail *QP
	kind       int
}

func (l *list) empty() bool { return l.head == nil }
func (l *list) front() *QP  { return l.head }

func (l *list) push(q *QP) {
	if q.links.in[l.kind] {
		return
	}
	q.links.in[l.kind], q.links.next[l.kind] = true, nil
	if l.tail == nil {
		l.head = q
	} else {
		l.tail.links.next[l.kind] = q
	}
	l.tail = q
}

// pushFront puts q before all others.
func (l *list) pushFront(q *QP) {
	if l.remove(q); l.head == nil {
		l.push(q)
		return
	}
	q.links.in[l.kind], q.links.next[l.kind] = true, l.head
	l.head = q
}

// pop takes out the front and returns it.
func (l *list) pop() *QP {
	q := l.head
	l.head = q.links.next[l.kind]
	if l.head == nil {
		l.tail = nil
	}
	q.links.in[l.kind], q.links.next[l.kind] = false, nil
	return q
}

// rotate moves the front to the back.
func (l *list) rotate() {
	if l.head != l.tail {
		l.push(l.pop())
	}
}

// remove takes out a queue pair wherever it stands. It is rare (a queue pair
// closes), so it walks.
func (l *list) remove(q *QP) {
	if !q.links.in[l.kind] {
		return
	}
	for n := l.len(); n > 0; n-- {
		if first := l.pop(); first != q {
			l.push(first)
		}
	}
}

func (l *list) len() int {
	n := 0
	for q := l.head; q != nil; q = q.links.next[l.kind] {
		n++
	}
	return n
}
