package agent

// list is a doubly linked list of half-open requests, oldest first, through the
// links that of returns.
type list struct {
	first, last *conn
	of          func(*setup) *links
}

type links struct{ before, behind *conn }

func inAll(s *setup) *links    { return &s.inAll }
func ofSource(s *setup) *links { return &s.ofSource }

func (l *list) add(c *conn) {
	n := l.of(c.setup)
	*n = links{before: l.last}
	if l.last == nil {
		l.first = c
	} else {
		l.of(l.last.setup).behind = c
	}
	l.last = c
}

func (l *list) remove(c *conn) {
	n := l.of(c.setup)
	if n.before == nil {
		l.first = n.behind
	} else {
		l.of(n.before.setup).behind = n.behind
	}
	if n.behind == nil {
		l.last = n.before
	} else {
		l.of(n.behind.setup).before = n.before
	}
	*n = links{}
}
