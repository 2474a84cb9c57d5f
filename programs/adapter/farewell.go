//go:build linux && cgo

package main

import "time"

// farewellTime is how long the end of a process takes at most.
const farewellTime = 200 * time.Millisecond

// farewell closes what is open, so that peers hear of it. The process ends, in
// whatever state its threads are: what takes longer is left to those who miss
// it.
func farewell() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, f := range handles.all() {
			f.close()
		}
	}()
	select {
	case <-done:
	case <-time.After(farewellTime):
	}
}
