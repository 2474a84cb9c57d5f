package work

import (
	"fmt"
	"runtime"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/verbs"
)

// Mode is a way to wait for completions.
type Mode uint8

// Modes.
const (
	Block  Mode = iota // poll for a short while, then sleep
	Spin               // poll, and sleep only after some milliseconds without anything
	Events             // sleep on a completion channel
)

// Waiter takes completions from one queue.
type Waiter struct {
	CQ    *verbs.CQ
	tasks task.Runner
	mode  Mode
	ch    *verbs.CompChannel
}

// NewWaiter makes a completion queue of n entries on dev and a Waiter for it.
func NewWaiter(dev *verbs.Device, n int, mode Mode) (*Waiter, error) {
	w := &Waiter{tasks: verbs.HCA(dev).Tasks(), mode: mode}
	if mode == Spin && (w.tasks.Simulated() || runtime.GOMAXPROCS(0) == 1) {
		w.mode = Block // to be woken takes no time; or the one processor has to receive as well
	}
	var opts []verbs.CQOption
	if mode == Events {
		ch, err := dev.CreateCompChannel()
		if err != nil {
			return nil, err
		}
		w.ch = ch
		opts = append(opts, verbs.WithChannel(ch))
	}
	cq, err := dev.CreateCQ(n, opts...)
	if err != nil {
		w.Close()
		return nil, err
	}
	w.CQ = cq
	return w, nil
}

// Close frees the queue.
func (w *Waiter) Close() error {
	if w.CQ != nil {
		w.CQ.Close()
	}
	if w.ch != nil {
		w.ch.Close()
	}
	return nil
}

// spinsPerYield is how often Spin polls before it lets other goroutines run and
// looks at the time; spinLimit is for how long it polls before it sleeps: what
// comes so late does not suffer from being woken up for, and on a machine with
// more work than processors the peer may be waiting for this one.
const (
	spinsPerYield = 64
	spinLimit     = 2 * time.Millisecond
)

// Next takes at least one completion, or says why the run was ended.
func (w *Waiter) Next(g *Guard, wc []verbs.WC) (int, error) {
	switch w.mode {
	case Spin:
		return w.spin(g, wc)
	case Events:
		return w.event(g, wc)
	}
	return w.sleep(g, wc)
}

func (w *Waiter) spin(g *Guard, wc []verbs.WC) (int, error) {
	var start time.Time
	for i := 1; ; i++ {
		if n := w.CQ.Poll(wc); n > 0 {
			return n, nil
		}
		if i%spinsPerYield != 0 {
			continue
		}
		if g.Stopped() {
			return 0, g.Err(verbs.ErrClosed)
		}
		runtime.Gosched()
		switch now := w.tasks.Now(); {
		case start.IsZero():
			start = now
		case now.Sub(start) > spinLimit:
			return w.sleep(g, wc)
		}
	}
}

func (w *Waiter) sleep(g *Guard, wc []verbs.WC) (int, error) {
	n, err := w.CQ.Wait(g.Ctx, wc)
	if err != nil {
		return 0, g.Err(err)
	}
	return n, nil
}

func (w *Waiter) event(g *Guard, wc []verbs.WC) (int, error) {
	for {
		if n := w.CQ.Poll(wc); n > 0 {
			return n, nil
		}
		w.CQ.Arm(false)
		if n := w.CQ.Poll(wc); n > 0 { // it came before the arming
			return n, nil
		}
		cq, err := w.ch.Get(g.Ctx)
		if err != nil {
			return 0, g.Err(err)
		}
		if cq != w.CQ {
			return 0, fmt.Errorf("the completion channel reports a queue that is not its own")
		}
	}
}
