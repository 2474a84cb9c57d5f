// Package clock has the time of the pure packages: a number that the driver
// passes in. It reads no clock.
package clock

import "time"

// Time is a point in time in nanoseconds, on any monotonic clock of the driver.
type Time int64

// Add returns the time d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns how much later t is than u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }
