package qp

import "fmt"

// Check says which invariant does not hold, for tests. It looks at everything
// that is in flight, so it takes time.
func (q *QP) Check() error {
	if q.halves.req != nil {
		if err := q.halves.req.Check(); err != nil {
			return fmt.Errorf("requester: %w", err)
		}
	}
	if q.halves.resp != nil {
		if err := q.halves.resp.Check(); err != nil {
			return fmt.Errorf("responder: %w", err)
		}
	}
	return nil
}
