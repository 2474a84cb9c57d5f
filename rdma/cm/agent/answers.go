package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// answers has the last SIDR_REPs. A question that comes again after its answer,
// because the answer was lost or late, gets the same one: the program is asked
// once. There is no connection that could say so.
type answers struct {
	of   map[question]*answer
	ring []*answer // of maxAnswers at most; next is the oldest then
	next int
}

// question is what a peer sends unchanged when it asks again.
type question struct {
	addresses
	request     mad.CommID
	transaction uint64
	service     mad.ServiceID
}

type answer struct {
	question
	at  clock.Time
	mad [mad.Len]byte
}

const (
	maxAnswers = 1024
	answerLife = 30 * time.Second // Linux asks again after 4.6 s
)

// add remembers an answer.
func (s *answers) add(now clock.Time, q question, m mad.Message) {
	a := s.of[q]
	if a == nil {
		a = s.slot()
		a.question = q
		s.of[q] = a
	}
	a.at = now
	m.AppendTo(a.mad[:0])
}

// slot returns an answer that is new, or the oldest.
func (s *answers) slot() *answer {
	if s.of == nil {
		s.of = map[question]*answer{}
	}
	if len(s.ring) < maxAnswers {
		s.ring = append(s.ring, new(answer))
		return s.ring[len(s.ring)-1]
	}
	a := s.ring[s.next]
	s.next = (s.next + 1) % maxAnswers
	delete(s.of, a.question)
	return a
}

// to returns the answer to a question, nil if there was none lately.
func (s *answers) to(now clock.Time, q question) *answer {
	if a := s.of[q]; a != nil && now.Sub(a.at) < answerLife {
		return a
	}
	return nil
}
