//go:build linux

package uverbs

import "time"

// A program may ring without having posted: by the bits of the doorbells, or by
// the eventfd, again and again. Each ring costs it less than the daemon. So
// after many in vain the daemon does not listen for a while, which becomes
// longer each time. A program that posts rings in vain now and then: what it
// rings for has been taken already.
const (
	vainRings  = 64
	leastDeaf  = 100 * time.Microsecond
	mostDeaf   = 50 * time.Millisecond
	deafFactor = 2
)

// vain counts rings in vain.
type vain struct {
	rings int
	deaf  time.Duration // the last time
}

// useful says that a ring was not in vain.
func (v *vain) useful() { *v = vain{} }

// again says that one was, and returns for how long nobody listens.
func (v *vain) again() time.Duration {
	if v.rings < vainRings {
		v.rings++
		return 0
	}
	v.deaf = min(max(v.deaf*deafFactor, leastDeaf), mostDeaf)
	return v.deaf
}

// pause waits, or until the client closes.
func (c *Client) pause(d time.Duration) {
	c.pauses.Add(1)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.stop:
	}
}
