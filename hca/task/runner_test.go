package task_test

import (
	"context"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/hca/task"
)

// TestSleepAllocatesNothing: a task that looks at memory now and then, until a
// peer has written there, leaves nothing to the collector.
func TestSleepAllocatesNothing(t *testing.T) { // not parallel: it counts
	var r task.Runner
	if n := testing.AllocsPerRun(100, func() {
		if err := r.Sleep(context.Background(), time.Nanosecond); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
