package responder

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Snapshot is what a responder is doing at a moment, for tests and diagnosis.
type Snapshot struct {
	Expected rocev2.PSN
	MSN      rocev2.PSN // messages completed
	Receives int        // in the own ring
	Answers  int        // that wait to be sent
	Pending  int        // READs and atomics of which an answer waits
	Fatal    rocev2.Syndrome

	waiting []response
}

// Snapshot returns a copy of the state.
func (r *Responder) Snapshot() Snapshot {
	a := &r.answers
	s := Snapshot{Expected: a.epsn, MSN: a.msn, Receives: r.exec.receives.Own.Len()}
	if a.fatal != nil {
		s.Fatal = a.fatal.syndrome
	}
	for i := a.queue.head; i != a.queue.tail; i++ {
		s.waiting = append(s.waiting, *a.queue.at(i))
	}
	s.Answers = len(s.waiting)
	a.res.each(func(e *resource, _ uint8) {
		if e.pending != pendingNone {
			s.Pending++
		}
	})
	return s
}

// Check says which invariant does not hold, for tests.
func (r *Responder) Check() error {
	if err := r.gap.reorder.Check(r.answers.epsn); err != nil {
		return err
	}
	if q := &r.answers.queue; int(q.tail-q.head) > len(q.ring) {
		return fmt.Errorf("%d answers wait and there is room for %d", q.tail-q.head, len(q.ring))
	}
	if r.exec.c.State == ib.StateErr && (r.exec.receives.Own.Len() > 0 || r.exec.receives.Held || r.gap.holds()) {
		return errors.New("in ERR there are receives or packets")
	}
	return nil
}
