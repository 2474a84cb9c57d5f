//go:build linux

package grid

import (
	"testing"
	"time"
)

func TestShareOfOthers(t *testing.T) {
	t.Parallel()
	busy, stolen := parseStat("cpu  100 20 300 4000 50 6 7 8 0 0\ncpu0 1 2 3\n")
	if busy != 4330*time.Millisecond || stolen != 80*time.Millisecond {
		t.Errorf("busy %v, stolen %v", busy, stolen)
	}
	at := time.Now()
	before := usage{at: at, busy: 10 * time.Second, mine: 3 * time.Second}
	after := usage{at: at.Add(time.Second), busy: 11500 * time.Millisecond, mine: 4250 * time.Millisecond, stolen: 50 * time.Millisecond}
	if got := after.others(before); got < 29.9 || got > 30.1 {
		t.Errorf("others used %v %%, want 30", got)
	}
	if got := usageNow(); got.busy <= 0 {
		t.Errorf("this machine has used no processor: %+v", got)
	}
}
