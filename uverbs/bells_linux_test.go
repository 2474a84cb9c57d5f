package uverbs

import "testing"

// How long a client looks follows what came of it, within bounds.
func TestSpin(t *testing.T) {
	t.Parallel()
	s := spin(mostSpin)
	yes, no := func() bool { return true }, func() bool { return false }
	for range 10 {
		before := s
		if s.look(no) || s > before || s < spin(leastSpin) {
			t.Errorf("%v after %v in vain", s, before)
		}
	}
	if s != spin(leastSpin) {
		t.Errorf("in vain again and again: %v", s)
	}
	for range 10 {
		before := s
		if !s.look(yes) || s < before {
			t.Errorf("%v after %v that was worth it", s, before)
		}
	}
	if s != spin(mostSpin) {
		t.Errorf("worth it again and again: %v", s)
	}
	if s = 0; s.look(no) || !s.look(yes) || s != 0 {
		t.Errorf("with one processor: %v", s)
	}
}
