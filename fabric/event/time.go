package event

import (
	"fmt"
	"math"
	"time"
)

// Time is a point in virtual time, or a length of it, in picoseconds. A byte
// takes 20 ps at 400 Gb/s, so the serialization of packets is exact at the
// usual rates. The end of time comes after 106 days.
type Time int64

const (
	Picosecond  Time = 1
	Nanosecond       = 1000 * Picosecond
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
)

// Never is later than any event.
const Never Time = math.MaxInt64

// Duration returns t in the unit of package time, rounded down to nanoseconds.
func (t Time) Duration() time.Duration { return time.Duration(t / Nanosecond) }

// Of returns d in picoseconds. Beyond the end of time it is Never, and before
// its beginning -Never.
func Of(d time.Duration) Time {
	const most = time.Duration(Never / Nanosecond)
	switch {
	case d > most:
		return Never
	case d < -most:
		return -Never
	}
	return Time(d) * Nanosecond
}

// String returns t in the largest unit that fits, for messages.
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	for _, u := range []struct {
		length Time
		name   string
	}{{Second, "s"}, {Millisecond, "ms"}, {Microsecond, "us"}, {Nanosecond, "ns"}} {
		if t >= u.length || -t >= u.length {
			return fmt.Sprintf("%g%s", float64(t)/float64(u.length), u.name)
		}
	}
	return fmt.Sprintf("%dps", int64(t))
}
