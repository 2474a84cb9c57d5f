// Package cores calls functions at the same time, again and again, for
// simulations whose parts run side by side for a short while each time
// (network.Config.Parallel). Its goroutines wait between the rounds.
package cores

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Cores are some goroutines, and the one that calls Do.
type Cores struct {
	workers []worker
	turn    func(int)
	left    atomic.Int32  // workers that have not finished the round
	done    chan struct{} // gets a value from the last one if Do waits for it
	waits   atomic.Bool
	spin    atomic.Bool // there is a processor for each
	looks   patience    // of the one that calls Do
	ended   sync.WaitGroup
	running atomic.Bool
	closed  bool
}

// worker is a goroutine. What it shares with others has a cache line of its
// own.
type worker struct {
	round  atomic.Uint64 // that it is to do; stop is none
	sleeps atomic.Bool
	wake   chan struct{}
	looks  patience
	failed any // what its turn has panicked with, or gone
	_      [64]byte
}

const stop = 1<<64 - 1

// patience is how a goroutine waits for others: it looks again and again for a
// while before it sleeps, because it takes longer to wake up one that sleeps
// than most windows last. Where turns are short it is better to sleep.
type patience struct {
	turn time.Duration // that was its own
}

// A look takes a nanosecond or two.
const (
	mostLooks  = 200_000
	leastLooks = 1_000
	longTurn   = 20 * time.Microsecond
	lookBreak  = 10_000 // looks, then others may run
)

// until looks for something, and reports whether it has come. Where there is no
// processor for each it does not look for long.
func (p *patience) until(spin *atomic.Bool, come func() bool) bool {
	looks := leastLooks
	if p.turn > longTurn {
		looks = mostLooks
	}
	for i := range looks {
		if come() {
			return true
		}
		if !spin.Load() {
			return false
		}
		if i%lookBreak == lookBreak-1 {
			runtime.Gosched()
		}
	}
	return come()
}

// takes notes how long a turn took that began at start.
func (p *patience) takes(start time.Time) { p.turn = time.Since(start) }

// New returns a Cores for n calls at a time. Close ends it.
func New(n int) *Cores {
	c := &Cores{workers: make([]worker, max(n, 1)-1), done: make(chan struct{}, 1)}
	for i := range c.workers {
		w := &c.workers[i]
		w.wake = make(chan struct{}, 1)
		c.ended.Add(1)
		go c.work(i)
	}
	return c
}

// Panic is what Do panics with when a call on another goroutine has panicked.
type Panic struct {
	Call  int // which one
	Value any
	Stack []byte // of its goroutine
}

// Error returns the value and the stack.
func (p *Panic) Error() string {
	return fmt.Sprintf("%v\n\nthe goroutine of part %d:\n%s", p.Value, p.Call, p.Stack)
}

// Unwrap returns the value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// gone stands for a goroutine that has ended itself (runtime.Goexit).
type gone struct{}

// Do calls turn with 0 to n-1, call 0 on the goroutine of the caller, and
// returns when all calls have. n is at most that of New, and 0 calls nothing.
// If calls panic, Do panics as the first of them does, when the others have
// returned; if none does and one ends its goroutine, so does Do. One goroutine
// at a time may call Do, and none during or after Close.
func (c *Cores) Do(n int, turn func(int)) {
	switch {
	case c.closed:
		panic("cores: a call after Close")
	case n < 1:
		return
	}
	if n-1 > len(c.workers) {
		panic(fmt.Sprintf("cores: %d calls at a time, but there are %d", n, len(c.workers)+1))
	}
	for i := range c.workers {
		if c.workers[i].failed == (gone{}) {
			panic("cores: a call has ended its goroutine, so there is one less")
		}
	}
	c.turn = turn
	// Not off and on again: a worker that looks just then would go to
	// sleep.
	if spin := n > 1 && n <= min(runtime.GOMAXPROCS(0), runtime.NumCPU()); c.spin.Load() != spin {
		c.spin.Store(spin)
	}
	c.left.Store(int32(n - 1))
	for i := range n - 1 {
		w := &c.workers[i]
		w.round.Add(1)
		if w.sleeps.Swap(false) {
			w.wake <- struct{}{}
		}
	}
	c.running.Store(true)
	defer c.finish(n)
	defer c.looks.takes(time.Now())
	turn(0)
}

// finish waits for the workers, and passes on what became of a call.
func (c *Cores) finish(n int) {
	own := recover() // of call 0; its frames are still there to be shown
	for here := func() bool { return c.left.Load() == 0 }; !c.looks.until(&c.spin, here); {
		// Not Store: QEMU, where it emulates arm64, lets the load that
		// follows overtake it.
		c.waits.Swap(true)
		if c.left.Load() > 0 || !c.waits.Swap(false) {
			<-c.done
		}
	}
	c.running.Store(false)
	first, ended := own, false
	for i := range n - 1 {
		w := &c.workers[i]
		switch {
		case w.failed == nil:
		case w.failed == (gone{}): // for good
			ended = true
		default:
			if first == nil {
				first = w.failed
			}
			w.failed = nil // of this round alone
		}
	}
	switch {
	case first != nil:
		panic(first)
	case ended:
		runtime.Goexit()
	}
}

func (c *Cores) work(i int) {
	defer c.ended.Done()
	w := &c.workers[i]
	for last := uint64(0); ; {
		for due := func() bool { return w.round.Load() != last }; !w.looks.until(&c.spin, due); {
			w.sleeps.Swap(true) // see finish
			if w.round.Load() == last || !w.sleeps.Swap(false) {
				<-w.wake
			}
		}
		if last = w.round.Load(); last == stop {
			return
		}
		c.call(i)
	}
}

// call does the turn of a worker.
func (c *Cores) call(i int) {
	w := &c.workers[i]
	returned := false
	start := time.Now()
	defer func() {
		w.looks.takes(start)
		if !returned {
			w.failed = gone{}
			if v := recover(); v != nil {
				w.failed = &Panic{Call: i + 1, Value: v, Stack: debug.Stack()}
			}
		}
		if c.left.Add(-1) == 0 && c.waits.Swap(false) {
			c.done <- struct{}{}
		}
	}()
	c.turn(i + 1)
	returned = true
}

// Close ends the goroutines. To call it again does nothing; while calls run it
// panics.
func (c *Cores) Close() {
	if c.running.Load() {
		panic("cores: Close while calls run")
	}
	c.closed = true
	for i := range c.workers {
		w := &c.workers[i]
		w.round.Store(stop)
		if w.sleeps.Swap(false) {
			w.wake <- struct{}{}
		}
	}
	c.ended.Wait()
}
