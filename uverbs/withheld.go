//go:build linux

package uverbs

import (
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// withheld is what a program that waits after it has polled is not told of at
// once: to be woken for each completion costs the daemon more than the rest of
// a message of bulk data.
type withheld struct {
	any atomic.Bool // a completion was, while the program waited
}

const (
	// tellAfter is how long completions of bulk data are kept from a
	// program that waits.
	tellAfter = 100 * time.Microsecond
	// longestBulkWait is longestWait of such a program.
	longestBulkWait = 250 * time.Microsecond
	// bulkGap is how long after a completion it is taken to move bulk data.
	bulkGap = 10 * time.Millisecond
)

// told says that there is a completion, and wakes the program if it waits for
// one after it has polled: at once, or, of a long message among bulk data,
// soon. What is short, or an error, others may wait for. It may be called with
// any lock held.
func (c *Client) told(long bool) {
	if c.room == nil || !long || !c.bulk.is() {
		c.area.told()
		return
	}
	c.area.completions.Add(2)
	if c.room.attends.Load() { // if not, nobody looks after it
		if c.area.waiting.Load() != 0 {
			set(&c.withheld.any, true)
		}
		return
	}
	c.area.wakeWaiting()
}

// tellWaiting wakes the program if it waits. The room is locked.
func (c *Client) tellWaiting() {
	c.here.waits, c.here.since = 0, 0
	c.withheld.any.Store(false)
	c.area.wakeWaiting()
}

// polls reports whether the program has polled in vain since the last call, or
// waits since it has, or would if it had a processor. The room is locked.
func (c *Client) polls(now clock.Time) bool {
	rests := c.mayRest(now)
	waits := c.area.waiting.Load() != 0
	switch {
	case !waits:
		c.here.waits, c.here.since = 0, 0
	case c.here.waits == 0:
		c.here.waits = now
	case c.toTell(now, rests):
		c.tellWaiting()
	}
	if c.area.polling.Load() != 0 {
		c.area.polling.Store(0)
		return true
	}
	return waits || rests
}

// mayRest tells the program whether it is to wait wherever it runs. The room is
// locked.
func (c *Client) mayRest(now clock.Time) bool {
	if c.bulk.fresh.Load() {
		c.bulk.fresh.Store(false)
		c.here.came = now
	}
	rests := c.bulk.rests()
	if rests && now.Sub(c.here.came) > bulkGap { // nothing completes
		c.bulk.answered()
		rests = false
	}
	word := uint32(0)
	if rests {
		word = 1
	}
	if c.area.bulk.Load() != word {
		c.area.bulk.Store(word)
	}
	return rests
}

// toTell reports whether a program that waits is to be woken. The room is
// locked.
func (c *Client) toTell(now clock.Time, rests bool) bool {
	any, waited := c.withheld.any.Load(), now.Sub(c.here.waits)
	switch {
	case any && !(rests && c.bulk.is()):
		return true
	case !rests:
		return waited > longestWait
	case any && c.here.since == 0:
		c.here.since = now
	}
	return c.here.since != 0 && now.Sub(c.here.since) > tellAfter || waited > longestBulkWait
}
