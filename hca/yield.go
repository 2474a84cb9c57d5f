package hca

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/wake"
)

// yielder has programs that do nothing but poll let others run. Without that,
// as many of them as there are processors shut out the timers, any goroutine
// that was interrupted with a lock held, and the programs that are to answer,
// until the scheduler steps in after 10 ms, twice perhaps.
//
// It does so only if some goroutine waits for a processor: where one is idle,
// runtime.Gosched wakes it, and the program goes on there, later.
type yielder struct {
	idle     atomic.Uint32 // polls that found nothing, in a row
	mu       sync.Mutex
	runnable []metrics.Sample
}

func (y *yielder) init() {
	y.runnable = []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
}

// polled records a poll; any says whether it found something.
func (y *yielder) polled(any bool) {
	if any {
		if y.idle.Load() != 0 { // the programs on all processors share it
			y.idle.Store(0)
		}
		return
	}
	if y.idle.Add(1)%wake.YieldEvery == 0 {
		y.toGoroutines()
	}
}

// toGoroutines lets other goroutines run if one waits for a processor, and
// reports whether there was one.
func (y *yielder) toGoroutines() bool {
	if !y.mu.TryLock() {
		return false
	}
	metrics.Read(y.runnable) // some 100 ns; it does not allocate
	v := y.runnable[0].Value
	others := v.Kind() != metrics.KindUint64 || v.Uint64() > 0
	y.mu.Unlock()
	if others {
		runtime.Gosched()
	}
	return others
}

// toOthers is for a receiver that looks for packets: other programs of the host
// get the processor as well.
func (y *yielder) toOthers() {
	if !y.toGoroutines() {
		yieldThread()
	}
}
