package event

import (
	"math"
	"testing"
	"time"
)

// A time that picoseconds cannot count is the end of time, and not another one.
func TestOf(t *testing.T) {
	t.Parallel()
	const most = time.Duration(Never / Nanosecond)
	for d, want := range map[time.Duration]Time{
		0: 0, 1: Nanosecond, -time.Second: -Second, most: Never / Nanosecond * Nanosecond,
		most + 1: Never, math.MaxInt64: Never, -most - 1: -Never, math.MinInt64: -Never,
	} {
		if got := Of(d); got != want {
			t.Errorf("%v is %d ps, want %d", d, got, want)
		}
	}
}
