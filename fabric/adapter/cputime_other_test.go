//go:build !linux

package adapter

import "time"

var begun = time.Now()

// threadTime is here the clock on the wall.
func threadTime() time.Duration { return time.Since(begun) }
