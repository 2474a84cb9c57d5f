package loglimit

import (
	"testing"
	"time"
)

// A flood of refused clients does not fill the disk, and the log says how many
// lines it has left out.
func TestLogLimit(t *testing.T) {
	t.Parallel()
	var l Limit
	now := time.Unix(1e9, 0)
	lines := 0
	for range 10_000 {
		if hidden, ok := l.Allow(now); ok {
			lines++
			if hidden != 0 {
				t.Errorf("%d lines are missing at the beginning", hidden)
			}
		}
	}
	if lines != 100 {
		t.Errorf("%d lines at once", lines)
	}
	if hidden, ok := l.Allow(now.Add(time.Second)); !ok || hidden != 9900 {
		t.Errorf("a second later: %v, %d left out", ok, hidden)
	}
	if _, ok := l.Allow(now.Add(1500 * time.Millisecond)); ok {
		t.Error("a line too soon")
	}
	lines = 0
	for range 200 {
		if _, ok := l.Allow(now.Add(time.Hour)); ok {
			lines++
		}
	}
	if lines != 100 {
		t.Errorf("%d lines after an hour", lines)
	}
}
