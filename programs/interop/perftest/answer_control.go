package perftest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/control"
)

// replies answer what a client that does not say what it runs sends on the
// control connection. The goroutine that calls run has them; the atomic fields
// are for all.
type replies struct {
	ctl   *control.Conn
	tasks task.Runner
	first []byte // the first address message, which is read already
	// lane returns the address of what serves a queue pair of the client.
	lane func(ctx context.Context, remote Address) (Address, error)

	handshakes atomic.Int64 // answered
	last       atomic.Int64 // when the last one was, in Unix nanoseconds
	slow       atomic.Int64 // the longest that the client took to answer, in nanoseconds
	reported   *report      // what the client has measured
}

// run answers until the client says that it is done.
func (r *replies) run(ctx context.Context) error {
	for {
		if r.first == nil {
			b, err := r.ctl.Peek(ctx, "next item", 1)
			if err != nil {
				return err
			}
			switch b[0] {
			case done[0]:
				return r.finish(ctx)
			case 0: // the first byte of a size
				if err := r.takeReport(ctx); err != nil {
					return err
				}
				continue
			}
		}
		if err := r.handshake(ctx); err != nil {
			return err
		}
	}
}

// takeReport exchanges results: the client's for none.
func (r *replies) takeReport(ctx context.Context) error {
	theirs, err := swapReports(ctx, r.ctl, report{})
	if err == nil {
		r.reported = &theirs
	}
	return err
}

// finish reads the client's last word.
func (r *replies) finish(ctx context.Context) error {
	b := make([]byte, len(done))
	if err := r.ctl.Read(ctx, "end", b); err != nil {
		return err
	}
	if string(b) != done {
		return &interop.ProtocolError{Step: "end", Got: b, Want: fmt.Sprintf("%q, or an address", done)}
	}
	r.ctl.Write(ctx, "end", []byte(done)) // the client may be gone by now, and may
	r.ctl.Finish(finishLimit)
	return nil
}

// handshake reads an address, and answers with that of the queue pair which
// serves it.
func (r *replies) handshake(ctx context.Context) error {
	const step = "handshake"
	b := r.first
	if r.first = nil; b == nil {
		b = make([]byte, addressLen)
		if err := readAddress(ctx, r.ctl.Read, step, b); err != nil {
			return err
		}
	}
	remote, err := parseAddress(step, b)
	if err != nil {
		return err
	}
	if last := r.last.Load(); last != 0 {
		r.slow.Store(max(r.slow.Load(), r.tasks.Now().UnixNano()-last))
	}
	local, err := r.lane(ctx, remote)
	if err != nil {
		return err
	}
	if err := r.ctl.Write(ctx, step, local.append(make([]byte, 0, addressLen))); err != nil {
		return err
	}
	r.last.Store(r.tasks.Now().UnixNano())
	r.handshakes.Add(1)
	return nil
}

// slowness is for how long the client may be silent though it has something to
// say, by what it took for its handshakes.
func (r *replies) slowness() time.Duration {
	return 2 * min(time.Duration(r.slow.Load()), time.Second)
}

// sinceLast is how long ago the last handshake was.
func (r *replies) sinceLast(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, r.last.Load()))
}
