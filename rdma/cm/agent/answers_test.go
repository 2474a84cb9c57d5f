package agent

import (
	"testing"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Answers are remembered for a while, and at most maxAnswers of them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	var s answers
	q := func(i int) question { return question{request: mad.CommID(i), transaction: 7} }
	for i := range 2 * maxAnswers {
		s.add(clock.Time(i), q(i), &mad.SIDRREP{RequestID: mad.CommID(i)})
	}
	now := clock.Time(2 * maxAnswers)
	if len(s.of) != maxAnswers || len(s.ring) != maxAnswers {
		t.Errorf("%d answers, %d in the ring", len(s.of), len(s.ring))
	}
	if s.to(now, q(maxAnswers-1)) != nil || s.to(now, q(5)) != nil {
		t.Error("the oldest are not forgotten")
	}
	for _, i := range []int{maxAnswers, 2*maxAnswers - 1} {
		a := s.to(now, q(i))
		var m mad.SIDRREP
		if a == nil || m.Parse(a.mad[:]) != nil || m.RequestID != mad.CommID(i) {
			t.Errorf("answer %d: %+v", i, m)
		}
	}
	if s.to(now.Add(answerLife), q(maxAnswers+1)) != nil {
		t.Error("an old answer is given")
	}
	other := q(maxAnswers)
	other.transaction++
	if s.to(now, other) != nil {
		t.Error("another question gets the answer")
	}
}
