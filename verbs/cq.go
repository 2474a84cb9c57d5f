package verbs

import (
	"context"
	"fmt"
	"iter"

	"github.com/gosoftroce/rocev2/hca"
)

// CQ is a completion queue. Its methods may be called from any goroutine.
type CQ struct {
	core   *hca.CQ
	handle uint32
}

// CompChannel is a completion channel: it tells a sleeping program which of its
// armed completion queues has got work.
type CompChannel struct{ core *hca.CompChannel }

// CQOption adjusts a completion queue.
type CQOption func(*cqConfig)

type cqConfig struct{ channel *hca.CompChannel }

// WithChannel attaches the completion queue to a completion channel of the same
// device, which is open; nil stands for none.
func WithChannel(ch *CompChannel) CQOption {
	return func(c *cqConfig) {
		if c.channel = nil; ch != nil {
			c.channel = ch.core
		}
	}
}

// CreateCQ makes a completion queue of at least n entries. A completion that
// finds it full is lost: the queue pair goes to the error state and
// EventCQError is raised. The error wraps ErrClosed, ErrOtherDevice or
// ErrNoResources, or a *RangeError for a size that the device does not offer.
func (d *Device) CreateCQ(n int, opts ...CQOption) (*CQ, error) {
	var c cqConfig
	for _, f := range opts {
		f(&c)
	}
	core, err := d.owner.CreateCQ(n, c.channel)
	if err != nil {
		return nil, fmt.Errorf("verbs: create a completion queue: %w", errorFrom(err))
	}
	cq := &CQ{core: core, handle: d.cqs.Add(1)}
	core.SetUserData(cq)
	return cq, nil
}

// CreateCompChannel makes a completion channel. The error wraps ErrClosed.
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	core, err := d.owner.CreateCompChannel()
	if err != nil {
		return nil, fmt.Errorf("verbs: create a completion channel: %w", err)
	}
	return &CompChannel{core: core}, nil
}

// Cap returns how many completions the queue holds: at least what CreateCQ was
// asked for.
func (cq *CQ) Cap() int { return cq.core.Cap() }

// Handle returns the number of the queue on its device, for logs: AsyncEvent
// prints it. Queues are numbered from 1 in the order in which they were made.
func (cq *CQ) Handle() uint32 { return cq.handle }

// Poll takes up to len(wc) completions and returns how many it took. It never
// waits. When the queue is empty it first handles what the device has received,
// on the caller's goroutine.
func (cq *CQ) Poll(wc []WC) int { return cq.core.PollProgress(wcsOf(wc)) }

// Wait takes at least one completion and at most len(wc). It waits for the
// first as long as ctx allows: it polls for a short while, then sleeps. The
// error wraps that of ctx, ErrClosed when the queue is closed, or ErrNoRoom
// when wc is empty. No completion is taken then.
func (cq *CQ) Wait(ctx context.Context, wc []WC) (int, error) {
	n, err := cq.core.Wait(ctx, wcsOf(wc))
	if err != nil {
		return 0, fmt.Errorf("verbs: wait for a completion: %w", err)
	}
	return n, nil
}

// Completions returns the completions as they come, waiting for each as Wait
// does. Whether the work succeeded is for the WC to say; an error is that of
// Wait, and the last that is returned.
//
//	for wc, err := range cq.Completions(ctx) {
//		if err != nil {
//			return err
//		}
//		if err := wc.Err(); err != nil {
//			…
//		}
//	}
//
// A loop that is left loses nothing: completions are taken one at a time. Where
// that costs too much, Poll and Wait take as many as there are.
func (cq *CQ) Completions(ctx context.Context) iter.Seq2[WC, error] {
	return func(yield func(WC, error) bool) {
		var wc [1]WC
		for {
			if _, err := cq.Wait(ctx, wc[:]); err != nil {
				yield(WC{}, err)
				return
			}
			if !yield(wc[0], nil) {
				return
			}
		}
	}
}

// Arm asks for one notification on the completion channel: for the next
// completion, or, with solicitedOnly, for the next receive whose sender
// solicited an event and for the next error. Completions that are there
// already raise none, so arm first, then poll until empty, then wait.
func (cq *CQ) Arm(solicitedOnly bool) { cq.core.Arm(solicitedOnly) }

// Close ends the queue and drops what is in it; goroutines in Wait return
// ErrClosed. Queue pairs that still complete into it go to the error state.
func (cq *CQ) Close() error { return cq.core.Close() }

// Get waits for a notification and returns the queue that it is about. Arm the
// queue again, and then poll it. The error wraps ErrClosed, or that of ctx.
func (ch *CompChannel) Get(ctx context.Context) (*CQ, error) {
	core, err := ch.core.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("verbs: wait on a completion channel: %w", err)
	}
	cq, _ := core.UserData().(*CQ)
	return cq, nil
}

// Close ends the channel; goroutines in Get return ErrClosed.
func (ch *CompChannel) Close() error { return ch.core.Close() }
