package hca

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
)

// A program that does nothing but poll leaves the processor to others now and
// then, even while another goroutine is about to receive.
func TestPollYields(t *testing.T) { // not parallel: it changes GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	a, _ := newHosts(t, Config{})
	for _, taken := range []bool{false, true} {
		if taken {
			a.shard().in.mu.Lock()
		}
		const rounds = 100
		var wc [1]ib.WC
		polls := 0
		for range rounds {
			var ran atomic.Bool
			go func() { ran.Store(true) }()
			for !ran.Load() {
				a.cq.PollProgress(wc[:])
				polls++
			}
		}
		if polls > rounds*2*wake.YieldEvery {
			t.Errorf("%d polls until another goroutine could run %d times, with the lock taken: %v", polls, rounds, taken)
		}
		if taken {
			a.shard().in.mu.Unlock()
		}
	}
}
