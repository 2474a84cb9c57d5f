package lease

import "sync"

// answers are those of an owner, which come in the order of the requests. The
// answer to one that was given up comes later, and is no other one's.
type answers struct {
	c chan *Message // that of the request that waits

	mu      sync.Mutex
	waits   bool // a request does
	givenUp int  // whose answers are still to come
}

func newAnswers() answers { return answers{c: make(chan *Message, 1)} }

// expect begins a request, of which there is one at a time.
func (a *answers) expect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits = true
}

// came takes an answer. One that was not asked for is dropped.
func (a *answers) came(m *Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.givenUp > 0:
		a.givenUp--
	case a.waits:
		a.waits = false
		a.c <- m
	}
}

// giveUp ends a request, unless its answer has come by now.
func (a *answers) giveUp() *Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits {
		a.waits = false
		a.givenUp++
		return nil
	}
	return <-a.c
}

// refusal is the error of an answer.
func (m *Message) refusal() error {
	if m.Refused != nil {
		return m.Refused
	}
	return nil
}
