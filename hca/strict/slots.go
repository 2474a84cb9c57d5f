package strict

import "sync"

// Slots are the slots of the send queue and the receive queue of a queue pair,
// as the library of an adapter counts them: those of sends are free when the
// completion of a later one was polled, that of a receive when its own was.
// Requests are posted, and complete, by one goroutine at a time; completions
// may be polled beside it. They are polled in order, and those of before a
// RESET first: so it is enough to count them.
type Slots struct {
	mu sync.Mutex

	depth    int           // of the send queue
	posted   uint64        // send requests
	done     uint64        // of them
	free     uint64        // of them: whose slots are
	signaled int           // of those that are not done
	shown    Queue[uint64] // completions that were not polled: what is free when they are
	stale    int           // such ones of before a RESET

	receives      int // whose slots are not free
	most          int // of them; 0: they are not counted
	filled        int // of them: that have completed
	staleReceives int // completions of before a RESET that were not polled
}

// NewSlots returns the slots of a queue pair that is made for that many
// requests. receives is 0 where they come from a shared queue.
func NewSlots(sends, receives int) *Slots { return &Slots{depth: sends, most: receives} }

// Send takes a slot for a request. full says that there is none, and never that
// there will be none unless the queue pair ends: no request among those that
// have the slots has a completion.
func (s *Slots) Send(signaled bool) (full, never bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.posted-s.free >= uint64(s.depth) {
		return true, s.signaled == 0 && s.shown.Len() == 0
	}
	s.posted++
	s.count(signaled, 1)
	return false, false
}

func (s *Slots) count(signaled bool, n int) {
	if signaled {
		s.signaled += n
	}
}

// Unsend gives back the slot of the last request, which was not posted after
// all.
func (s *Slots) Unsend(signaled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posted--
	s.count(signaled, -1)
}

// Sent says that the oldest request has completed, and whether the program can
// poll the completion.
func (s *Slots) Sent(signaled, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done++
	s.count(signaled, -1)
	if shown {
		s.shown.Push(s.done)
	}
}

// SentLost says that the program cannot poll the last completion: it was lost.
func (s *Slots) SentLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.DropLast()
}

// SentPolled says that the completion of a send request was polled.
func (s *Slots) SentPolled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stale > 0 {
		s.stale--
	} else if n, ok := s.shown.Pop(); ok {
		s.free = n
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

// Unreceive gives back the slots of the last n receives, which were not posted
// after all.
func (s *Slots) Unreceive(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receives -= n
}

// Received says that a receive has completed, or, by -1, that this completion
// was lost.
func (s *Slots) Received(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filled += n
}

// ReceivePolled says that the completion of a receive was polled.
func (s *Slots) ReceivePolled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.staleReceives > 0:
		s.staleReceives--
	case s.filled > 0:
		s.filled--
		s.receives--
	}
}

// Reset frees all slots: the queue pair is in RESET.
func (s *Slots) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale += s.shown.Len()
	s.staleReceives += s.filled
	s.shown = Queue[uint64]{}
	s.posted, s.done, s.free, s.signaled, s.receives, s.filled = 0, 0, 0, 0, 0, 0
}
