package verbs

import (
	"context"
	"fmt"
	"iter"
	"time"

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

type cqConfig struct {
	channel *hca.CompChannel
	options []hca.CQOption
}

// WithChannel attaches the completion queue to a completion channel of the same
// device, which is open; nil stands for none. A channel serves any number of
// queues.
func WithChannel(ch *CompChannel) CQOption {
	return func(c *cqConfig) {
		if c.channel = nil; ch != nil {
			c.channel = ch.core
		}
	}
}

// WithTimestamps has every completion carry, in WC.Timestamp, the time of
// [Device.Now] at which it was added to the queue. Reading the clock costs some
// 50 ns for each completion; a queue without timestamps does not read it.
func WithTimestamps() CQOption {
	return func(c *cqConfig) { c.options = append(c.options, hca.WithTimestamps()) }
}

// WithHandler has f called when completions have come, and once more with open
// false when the queue is closed. f takes them by Poll, until there are none.
// It runs on the goroutine that has received them: one of the device's, or one
// that polls or waits for any queue. So no goroutine is woken, but all wait for
// f, which must never block. Calls never overlap. It is for services that a
// program has beside its own work, and that must not receive in its place, as a
// goroutine in Wait would.
func WithHandler(f func(open bool)) CQOption {
	return func(c *cqConfig) { c.options = append(c.options, hca.WithHandler(f)) }
}

// Await waits until ready has a token, and takes it. It is for a goroutine that
// waits for what the handler of the queue (WithHandler) will find: the handler
// puts the token. Meanwhile the goroutine receives for the device, as one in
// Wait does, so that the answer wakes it and no other. It is for short waits,
// because goroutines in Wait then receive through it. Code that puts a token
// calls Nudge afterwards. The error wraps ErrClosed, or that of ctx.
func (cq *CQ) Await(ctx context.Context, ready <-chan struct{}) error {
	if err := cq.core.Await(ctx, ready); err != nil {
		return fmt.Errorf("verbs: wait for a handler: %w", err)
	}
	return nil
}

// Nudge has goroutines in Await look for their tokens.
func (cq *CQ) Nudge() { cq.core.Nudge() }

// WithVector gives the completion queue a completion vector, 0 to
// [Device.CompletionVectors] - 1. A vector is a shard of the device (see
// Config.Shards): queue pairs whose send queue completes here live on that
// shard, and so do those whose receive queue does, if their send queue has no
// vector. A program that polls or waits for the queue drives that shard and no
// other, unless queue pairs of other shards complete into it too. So a
// goroutine for each vector has a lock and a socket of its own. Without this
// option queue pairs are spread over the shards by chance.
func WithVector(i int) CQOption {
	return func(c *cqConfig) { c.options = append(c.options, hca.WithVector(i)) }
}

// CompletionVectors returns the number of completion vectors: that of the
// shards.
func (d *Device) CompletionVectors() int { return d.core.CompletionVectors() }

// Now returns the time of the device's clock, which timestamps of completions
// show too: nanoseconds since the device was opened, never 0.
func (d *Device) Now() uint64 { return d.core.Now() }

// CreateCQ makes a completion queue of at least n entries. A completion that
// finds it full is lost: the queue pair goes to the error state and
// EventCQError is raised. The error wraps ErrClosed, ErrOtherDevice or
// ErrNoResources, or a *RangeError for a size or a vector that the device does
// not offer.
func (d *Device) CreateCQ(n int, opts ...CQOption) (*CQ, error) {
	var c cqConfig
	for _, f := range opts {
		f(&c)
	}
	core, err := d.context.CreateCQ(n, c.channel, c.options...)
	if err != nil {
		return nil, fmt.Errorf("verbs: create a completion queue: %w", err)
	}
	cq := &CQ{core: core, handle: d.cqs.Add(1)}
	core.SetUserData(cq)
	return cq, nil
}

// ChannelOption adjusts a completion channel.
type ChannelOption func(*channelConfig)

type channelConfig struct{ aside bool }

// Aside is for the channel of a service that a program has beside its own work.
// Without it, a goroutine that waits on a channel receives for the device, in
// the place of a program that waits for a completion: each of its completions
// would then take a change of goroutines. With Aside the device's own goroutine
// receives when no program does.
func Aside() ChannelOption { return func(c *channelConfig) { c.aside = true } }

// CreateCompChannel makes a completion channel. The error wraps ErrClosed.
func (d *Device) CreateCompChannel(opts ...ChannelOption) (*CompChannel, error) {
	var c channelConfig
	for _, o := range opts {
		o(&c)
	}
	core, err := d.context.CreateCompChannel(c.aside)
	if err != nil {
		return nil, fmt.Errorf("verbs: create a completion channel: %w", err)
	}
	return &CompChannel{core: core}, nil
}

// Cap returns how many completions the queue holds: at least what CreateCQ was
// asked for.
func (cq *CQ) Cap() int { return cq.core.Cap() }

// Resize changes the size to at least n completions (IBTA 11.2.8.3). No
// completion is lost: if the queue holds more than n, nothing changes and the
// error wraps a *RangeError. It wraps one also for a size that the device does
// not offer, and else ErrClosed. Queue pairs may complete meanwhile, and other
// goroutines poll and wait.
func (cq *CQ) Resize(n int) error {
	if err := cq.core.Resize(n); err != nil {
		return fmt.Errorf("verbs: resize CQ %d: %w", cq.handle, err)
	}
	return nil
}

// SetModeration has the notification of an armed queue held back until count
// completions have come that call for it, or until period has passed since the
// first of them (the cq_count and cq_period of ibv_modify_cq). So a program
// that sleeps on a completion channel is woken once for many completions. With
// solicited-only arming those count that are solicited. A completion with an
// error is told at once, and what was held back goes with it. Poll and Wait are
// not affected.
//
// A count of 0 or 1, or a period of 0, switches moderation off. The most are
// 65535 and 65535 µs. A notification that is held back at the call is given at
// once. The error wraps a *RangeError or ErrClosed.
func (cq *CQ) SetModeration(count int, period time.Duration) error {
	if err := cq.core.SetModeration(hca.Moderation{Count: count, Period: period}); err != nil {
		return fmt.Errorf("verbs: set the moderation of CQ %d: %w", cq.handle, err)
	}
	return nil
}

// Moderation returns what SetModeration has set.
func (cq *CQ) Moderation() (count int, period time.Duration) {
	m := cq.core.Moderation()
	return m.Count, m.Period
}

// Handle returns the number of the queue on its device, for logs: AsyncEvent
// prints it. Queues are numbered from 1 in the order in which they were made.
func (cq *CQ) Handle() uint32 { return cq.handle }

// Poll takes up to len(wc) completions and returns how many it took. It never
// waits. When the queue is empty it first handles what the device has received,
// on the caller's goroutine.
func (cq *CQ) Poll(wc []WC) int { return cq.core.PollProgress(wc) }

// Wait takes at least one completion and at most len(wc). It waits for the
// first as long as ctx allows: it polls for a short while, then sleeps. The
// error wraps that of ctx, ErrClosed when the queue is closed, or ErrNoRoom
// when wc is empty. No completion is taken then.
func (cq *CQ) Wait(ctx context.Context, wc []WC) (int, error) {
	n, err := cq.core.Wait(ctx, wc)
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

// Chan returns a channel of the completions as they come, for select. It is
// closed when ctx or the queue ends. A completion that was taken and not
// received then goes back to the queue, in front of the others. So none is
// lost.
//
// One goroutine works for the channel until ctx or the queue ends: a program
// that stops receiving must end ctx. Each completion costs a change of
// goroutines, some microseconds more than Wait. Where that counts, use Poll or
// Wait.
func (cq *CQ) Chan(ctx context.Context) <-chan WC {
	out := make(chan WC)
	go func() {
		defer close(out)
		var wc [1]WC
		for {
			if _, err := cq.Wait(ctx, wc[:]); err != nil {
				return
			}
			select {
			case out <- wc[0]:
			case <-ctx.Done():
				cq.core.PutBack(wc[0])
				return
			case <-cq.core.Done():
				return
			}
		}
	}()
	return out
}

// Arm asks for one notification on the completion channel: for the next
// completion, or, with solicitedOnly, for the next receive whose sender
// solicited an event and for the next error (IBTA 11.4.2.2). To ask for any
// overrides to ask for solicited ones; the other way round, any stays asked
// for. Completions that are there already raise none, so arm first, then poll
// until empty, then wait.
func (cq *CQ) Arm(solicitedOnly bool) { cq.core.Arm(solicitedOnly) }

// Close ends the queue and drops what is in it; goroutines in Wait return
// ErrClosed. Queue pairs that still complete into it go to the error state.
func (cq *CQ) Close() error { return cq.core.Close() }

// Get waits for a notification and returns the queue that it is about. Queues
// come in the order of their notifications, each once until it is armed again.
// A queue that is closed gives back its notification. Arm the queue again, and
// then poll it. The error wraps ErrClosed, or that of ctx.
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
