package foreign

import (
	"testing"
	"time"
)

// A daemon that has no processor for a while does not take that for the time of
// the process that it waits for.
func TestLooksOfABusyMachine(t *testing.T) {
	t.Parallel()
	now := time.Time{}
	looks := func(each time.Duration, until int) (waited time.Duration, n int, there bool) {
		waited, there = inLooks(patience, func() time.Time { return now }, func(time.Duration, time.Duration) (bool, bool) {
			n++
			now = now.Add(each)
			return n == until, n == until
		})
		return waited, n, there
	}
	if waited, n, there := looks(time.Second, 3); !there || n != 3 || waited != 3*lookAfter {
		t.Errorf("%d looks of a second: %v, there %v", n, waited, there)
	}
	if waited, n, there := looks(time.Second, 100); there || n != int(patience/lookAfter) || waited != patience {
		t.Errorf("%d looks at what does not come: %v, there %v", n, waited, there)
	}
	if waited, n, there := looks(time.Millisecond, 2); !there || n != 2 || waited != 2*time.Millisecond {
		t.Errorf("%d short looks: %v, there %v", n, waited, there)
	}
}
