package world

import (
	"container/heap"

	"github.com/gosoftroce/rocev2/fabric/event"
)

// sleepers are programs of a host that go on at a time, the next one first. A
// program that is woken before leaves no trace: else the run would last until a
// timeout that no program waits for any more.
type sleepers []*program

// sleepUntil has t woken at a time.
func (h *host) sleepUntil(t *program, at event.Time) {
	if at == event.Never {
		return
	}
	t.until = at
	heap.Push(&h.asleep, t)
	if t.sleeps == 0 {
		h.arm()
	}
}

// wakes notes that t goes on.
func (h *host) wakes(t *program) {
	if t.until == event.Never {
		return
	}
	first := t.sleeps == 0
	heap.Remove(&h.asleep, t.sleeps)
	t.until = event.Never
	if first && !h.w.tasks.inside { // else the host that is called does it
		h.arm()
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (s sleepers) Len() int { return len(s) }

func (s sleepers) Less(i, j int) bool { return s[i].until < s[j].until }

func (s sleepers) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].sleeps, s[j].sleeps = i, j
}

func (s *sleepers) Push(x any) {
	t := x.(*program)
	t.sleeps = len(*s)
	*s = append(*s, t)
}

func (s *sleepers) Pop() any {
	last := len(*s) - 1
	t := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return t
}
