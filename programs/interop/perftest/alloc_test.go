package perftest

import (
	"runtime"
	"testing"
)

// TestSteadyStateAllocatesNothing compares a short run with a long one: the
// difference is what the operations between them allocate, on both sides and
// in the device.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of thousands of operations: run without -short")
	}
	for _, test := range []Test{{Write, Bandwidth}, {Read, Bandwidth}, {Send, Bandwidth}, {Write, Latency}, {Send, Latency}} {
		const short, long = 2000, 12000
		mallocs := func(n int) uint64 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s, c := both(t, Config{Test: test, Iterations: n, Size: 64}, Config{Test: test, Iterations: n, Size: 64})
			runtime.ReadMemStats(&after)
			if s.Err != nil || c.Err != nil {
				t.Fatalf("server: %v; client: %v", s.Err, c.Err)
			}
			return after.Mallocs - before.Mallocs
		}
		mallocs(short)
		a, b := mallocs(short), mallocs(long)
		per := (float64(b) - float64(a)) / (long - short)
		t.Logf("%v: %d mallocs in %d operations, %d in %d: %.3f each", test, a, short, b, long, per)
		if per > 0.1 {
			t.Errorf("%v allocates %.2f times an operation", test, per)
		}
	}
}
