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
	s := Snapshot{Expected: r.epsn, MSN: r.msn, Receives: r.receives.Own.Len(), Fatal: r.fatal.syndrome}
	for i := r.out.head; i != r.out.tail; i++ {
		s.waiting = append(s.waiting, *r.out.at(i))
	}
	s.Answers = len(s.waiting)
	for _, list := range [][]resource{r.res.ring, r.res.beside} {
		for i := range list {
			if list[i].pending != pendingNone {
				s.Pending++
			}
		}
	}
	return s
}

// Check says which invariant does not hold, for tests.
func (r *Responder) Check() error {
	if err := r.reorder.Check(r.epsn); err != nil {
		return err
	}
	if n := int(r.out.tail - r.out.head); n > len(r.out.ring) {
		return fmt.Errorf("%d answers wait and there is room for %d", n, len(r.out.ring))
	}
	if r.c.State == ib.StateErr && (r.receives.Own.Len() > 0 || r.receives.Held || r.reorder.Len() > 0) {
		return errors.New("in ERR there are receives or packets")
	}
	return nil
}
