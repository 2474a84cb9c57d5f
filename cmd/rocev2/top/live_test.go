package top

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
)

// screenTerm is a terminal that a test has.
type screenTerm struct {
	input  chan []byte
	events chan Event
	frames chan string

	mu     sync.Mutex
	states []string // begin, end, suspend
	broken error
}

func newScreenTerm() *screenTerm {
	return &screenTerm{input: make(chan []byte), events: make(chan Event), frames: make(chan string, 1000)}
}

func (s *screenTerm) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames <- string(b)
	return len(b), s.broken
}

func (s *screenTerm) note(what string) {
	s.mu.Lock()
	s.states = append(s.states, what)
	s.mu.Unlock()
}

func (s *screenTerm) Size() (int, int)     { return 80, 24 }
func (s *screenTerm) Input() <-chan []byte { return s.input }
func (s *screenTerm) Events() <-chan Event { return s.events }
func (s *screenTerm) Begin() error         { s.note("begin"); return nil }
func (s *screenTerm) End()                 { s.note("end") }
func (s *screenTerm) Suspend()             { s.note("suspend") }
func (s *screenTerm) until(text string) {
	for f := range s.frames {
		if strings.Contains(f, text) {
			return
		}
	}
}

// sources are functions.
type sourceFunc func(context.Context) (*Sample, error)

func (f sourceFunc) Sample(ctx context.Context) (*Sample, error) { return f(ctx) }

// run has Live on a terminal, and returns what it ends with.
func run(t *testing.T, term *screenTerm, src Source) <-chan any {
	t.Helper()
	v, err := NewView("", "", minInterval)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan any, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil {
				over <- p
				return
			}
			over <- err
		}()
		err = Live(t.Context(), term, src, v, busy(1))
	}()
	return over
}

func (s *screenTerm) wantStates(t *testing.T, want string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.states, " "); got != want {
		t.Errorf("the terminal has seen %q, want %q", got, want)
	}
}

// The terminal is given back however it ends.
func TestLiveEnds(t *testing.T) {
	t.Parallel()
	fine := sourceFunc(func(context.Context) (*Sample, error) { return busy(2), nil })
	for name, c := range map[string]struct {
		src  Source
		do   func(*screenTerm)
		want func(any) bool
	}{
		"q":       {fine, func(s *screenTerm) { s.input <- []byte("q") }, func(v any) bool { return v == nil }},
		"hangup":  {fine, func(s *screenTerm) { s.events <- Hangup }, func(v any) bool { return v == nil }},
		"no keys": {fine, func(s *screenTerm) { close(s.input) }, func(v any) bool { return v == nil }},
		"a panic": {sourceFunc(func(context.Context) (*Sample, error) { panic("oh") }), func(*screenTerm) {}, func(v any) bool { return v == "oh" }},
		"it cannot be written to": {fine, func(s *screenTerm) { s.mu.Lock(); s.broken = errors.New("gone"); s.mu.Unlock() },
			func(v any) bool { err, ok := v.(error); return ok && strings.Contains(err.Error(), "gone") }},
	} {
		term := newScreenTerm()
		over := run(t, term, c.src)
		term.until("rocev2d 1 on host")
		c.do(term)
		if v := <-over; !c.want(v) {
			t.Errorf("%s: it ends with %v", name, v)
		}
		term.wantStates(t, "begin end")
	}
}

// Keys are obeyed while the source does not answer, and what it says then is
// shown.
func TestLiveWaitsForNoSource(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan bool), make(chan error)
	term := newScreenTerm()
	over := run(t, term, sourceFunc(func(context.Context) (*Sample, error) {
		asked <- true
		if err := <-answer; err != nil {
			return nil, err
		}
		return busy(2), nil
	}))
	<-asked
	term.input <- []byte("3")
	term.until("ib_write_bw")
	answer <- errors.New("it went away")
	term.until("it went away")
	<-asked
	answer <- nil
	term.until("1.0MB/s")
	term.events <- Resized
	term.events <- Suspend
	term.input <- []byte("q")
	if v := <-over; v != nil {
		t.Error(v)
	}
	term.wantStates(t, "begin end suspend begin end")
}
