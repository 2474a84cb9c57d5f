package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// timers is a heap of connections by deadline. A connection knows its place, so
// that its timer can be stopped.
type timers []*conn

// set starts or moves the timer of c.
func (h *timers) set(c *conn, at clock.Time) {
	c.deadline = at
	if c.timer == 0 {
		*h = append(*h, c)
		c.timer = int32(len(*h))
	}
	i := int(c.timer) - 1
	if !h.up(i) {
		h.down(i)
	}
}

// stop takes c out, if it is in.
func (h *timers) stop(c *conn) {
	if c.timer == 0 {
		return
	}
	i, n := int(c.timer)-1, len(*h)-1
	last := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	c.timer = 0
	if i == n {
		return
	}
	(*h)[i] = last
	last.timer = int32(i + 1)
	if !h.up(i) {
		h.down(i)
	}
}

func (h timers) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer, h[j].timer = int32(i+1), int32(j+1)
}

// up moves the entry to where it belongs among those before it, and reports
// whether it moved.
func (h timers) up(i int) bool {
	from := i
	for i > 0 && h[i].deadline < h[(i-1)/2].deadline {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	return i != from
}

func (h timers) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if least+1 < len(h) && h[least+1].deadline < h[least].deadline {
			least++
		}
		if h[i].deadline <= h[least].deadline {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// pace says how often a message goes again, and starts its timer. However often
// that is, the last wait is the longest.
func (h *timers) pace(now clock.Time, c *conn, first, longest time.Duration, retries uint8) {
	first = min(first, maxDuration)
	longest = min(max(longest, first), maxDuration)
	if retries == 0 {
		first = longest
	}
	c.interval, c.maxInterval = uint32(first/time.Microsecond), uint32(longest/time.Microsecond)
	c.retries = retries
	c.extended = false
	h.set(c, now.Add(first))
}

const maxDuration = 30 * time.Minute // twice of it fits into the 32 bits of interval

// soon is how many repetitions of a REQ come after the first wait each, before
// the waits double. A listener that others flood loses some requests, and knows
// the honest ones by their coming again.
const soon = 2

// again starts the timer for the next transmission after one more, and reports
// whether there is one more.
func (h *timers) again(now clock.Time, c *conn) bool {
	if c.retries == 0 {
		return false
	}
	c.retries--
	if c.state != StateREQSent || c.maxRetries-c.retries > soon {
		c.interval = min(2*c.interval, c.maxInterval)
	}
	if c.retries == 0 {
		c.interval = c.maxInterval
	}
	c.extended = false
	h.set(c, now.Add(time.Duration(c.interval)*time.Microsecond))
	return true
}
