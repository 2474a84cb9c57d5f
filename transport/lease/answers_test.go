package lease

import "testing"

// The answer to a request that was given up is not taken for that to the next
// one, however late it comes.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	a := newAnswers()
	yes, no := &Message{Done: true}, &Message{Refused: &Refusal{Reason: InUse}}
	a.came(yes) // not asked for
	a.expect()
	if a.giveUp() != nil {
		t.Error("an answer that was not asked for is one")
	}
	a.expect()
	if a.giveUp() != nil {
		t.Error("an answer came from nowhere")
	}
	a.expect()
	a.came(yes) // to the first
	a.came(yes) // to the second
	select {
	case m := <-a.c:
		t.Errorf("the answer to an earlier request is taken: %+v", m)
	default:
	}
	a.came(no)
	if m := <-a.c; m != no || m.refusal() == nil {
		t.Errorf("%+v", m)
	}
	a.expect()
	a.came(yes)
	a.came(no) // not asked for
	if m := a.giveUp(); m != yes || m.refusal() != nil {
		t.Errorf("it came in time, and is lost: %+v", m)
	}
}
