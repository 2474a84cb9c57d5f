package strict

import "sync"

// Slots are the slots of the send queue and the receive queue of a queue pair,
// as the library of an adapter counts them: one of a send is free when the
// completion of a later signaled request was polled, one of a receive when its
// own was. Requests are posted by one goroutine at a time; completions may be
// polled beside it.
type Slots struct {
	mu       sync.Mutex
	sends    []slot // a power of two; grows up to what depth needs
	head     uint32 // oldest whose slot is not free
	tail     uint32 // next to post
	depth    int
	signaled int // of those from head to tail

	receives int // posted and not polled
	most     int // of them; 0: they are not counted
}

// slot is a send request whose slot is not free.
type slot struct {
	id       uint64
	signaled bool
}

// NewSlots returns the slots of a queue pair that is made for that many
// requests. receives is 0 where they come from a shared queue.
func NewSlots(sends, receives int) *Slots { return &Slots{depth: sends, most: receives} }

// Send takes a slot for a request. full says that there is none, and never that
// there will be none unless the queue pair ends: no request among those that
// have the slots has a completion.
func (s *Slots) Send(id uint64, signaled bool) (full, never bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int(s.tail - s.head)
	if n >= s.depth {
		return true, s.signaled == 0
	}
	if n == len(s.sends) {
		s.grow()
	}
	s.sends[s.tail&uint32(len(s.sends)-1)] = slot{id, signaled}
	s.tail++
	if signaled {
		s.signaled++
	}
	return false, false
}

func (s *Slots) grow() {
	next := make([]slot, max(2*len(s.sends), 16))
	for i := s.head; i != s.tail; i++ {
		next[i&uint32(len(next)-1)] = s.sends[i&uint32(len(s.sends)-1)]
	}
	s.sends = next
}

// Unsend gives back the slots of the last n requests, which were not posted
// after all.
func (s *Slots) Unsend(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; n > 0 && s.tail != s.head; n-- {
		s.tail--
		if s.sends[s.tail&uint32(len(s.sends)-1)].signaled {
			s.signaled--
		}
	}
}

// Sent says that the completion of a send request was polled. One with an error
// names its request by the ID: it may be of one that is not signaled.
func (s *Slots) Sent(id uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.head != s.tail {
		w := s.sends[s.head&uint32(len(s.sends)-1)]
		s.head++
		if w.signaled {
			s.signaled--
		}
		if ok && w.signaled || !ok && w.id == id {
			return
		}
	}
}

// Receive takes a slot for a receive. It reports false where there is none.
func (s *Slots) Receive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 0 && s.receives >= s.most {
		return false
	}
	s.receives++
	return true
}

// Received says that completions of receives were polled, or that receives were
// not posted after all.
func (s *Slots) Received(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receives = max(s.receives-n, 0)
}

// Reset frees all slots: the queue pair is in RESET.
func (s *Slots) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.tail, s.signaled, s.receives = 0, 0, 0, 0
}
