package fabric

import "time"

// event is something that happens to a frame: it reaches the switch, or, with a
// port, that port.
type event struct {
	at    time.Duration
	seq   uint64 // order of events at one time
	frame *frame
	port  *Port
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// eventHeap is a binary heap, the earliest event first.
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(&s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *eventHeap) pop() event {
	s := *h
	first, n := s[0], len(s)-1
	s[0], s[n] = s[n], event{}
	s = s[:n]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return first
		}
		if c+1 < n && s[c+1].before(&s[c]) {
			c++
		}
		if !s[c].before(&s[i]) {
			return first
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}
