package qp

import "fmt"

// Check says which invariant does not hold, for tests. It looks at everything
// that is in flight, so it takes time.
func (q *QP) Check() error {
	if q.req != nil {
		if err := q.req.Check(); err != nil {
			return fmt.Errorf("requester: %w", err)
		}
	}
	if q.resp != nil {
		if err := q.resp.Check(); err != nil {
			return fmt.Errorf("responder: %w", err)
		}
	}
	return nil
}
