package requester

import (
	"fmt"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp/cc"
	"github.com/gosoftroce/rocev2/rocev2"
)

// Snapshot is what a requester is doing at a moment, for tests of packages
// above and for diagnosis.
type Snapshot struct {
	Queued      int        // requests that have not completed
	Una         rocev2.PSN // the oldest that is not acknowledged
	Next        rocev2.PSN // that is sent next, for the first time or again
	Max         rocev2.PSN // the first that was never sent
	Limit       cc.Limit   // of what is in flight
	RetriesLeft uint8
	Paging      bool       // a response waits for memory
	Limited     bool       // the peer gives credits,
	LSN         rocev2.PSN // up to this message

	stalled  bool
	cursor   cursor
	recovery recoveryState
}

// Snapshot returns a copy of the state.
func (r *Requester) Snapshot() Snapshot {
	return Snapshot{
		Queued: r.queue.Len(), Una: r.una, Next: r.nxt, Max: r.max, Limit: r.c.CC.Limit, RetriesLeft: r.retry.left,
		Paging: r.paging, Limited: r.credit.limited, LSN: r.credit.lsn, stalled: r.credit.stalled, cursor: r.cursor, recovery: r.recoveryState,
	}
}

// Check says which invariant does not hold, for tests.
func (r *Requester) Check() error {
	if err := r.reorder.Check(r.una); err != nil {
		return err
	}
	head, tail := r.queue.Head, r.queue.Tail
	if head > r.cur || r.cur > r.started || r.started > tail {
		return fmt.Errorf("queue %d %d %d %d", head, r.cur, r.started, tail)
	}
	if r.nxt.Ahead(r.una) > r.max.Ahead(r.una) || r.posUna > r.posNxt {
		return fmt.Errorf("PSNs %d %d %d, position %d %d", r.una, r.nxt, r.max, r.posUna, r.posNxt)
	}
	if r.rd > uint32(r.c.Attr.MaxRdAtomic) {
		return fmt.Errorf("%d READs outstanding of %d", r.rd, r.c.Attr.MaxRdAtomic)
	}
	if n := r.nxt.Ahead(r.una); (n == 0) != (r.posUna == r.posNxt) {
		return fmt.Errorf("%d PSNs and %d bytes in flight", n, r.posNxt-r.posUna)
	}
	if r.una == r.nxt && r.rd != 0 {
		return fmt.Errorf("%d READs outstanding and nothing in flight", r.rd)
	}
	if r.sel != nil && r.sel.reads != nil && !r.onlyReads(r.sel.reads.End()) {
		return fmt.Errorf("responses to READs are known up to %d, behind another request", r.sel.reads.End())
	}
	_, armed := r.Deadline()
	working := r.una != r.nxt || r.rnr.waiting || r.reorder.Len() > 0 || r.paced
	switch {
	case r.c.State == ib.StateErr && (armed || head != tail):
		return fmt.Errorf("in ERR: timer %v, %d requests", armed, tail-head)
	case r.c.State != ib.StateErr && armed != working:
		return fmt.Errorf("timer %v, work %v", armed, working)
	}
	return nil
}
