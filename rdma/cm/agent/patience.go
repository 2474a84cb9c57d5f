package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// askPause is how long a request waits to go again where no program listens.
const askPause = 50 * time.Millisecond

func (c *conn) setPatience(d time.Duration) { c.asks = uint8(min(max(d, 0)/askPause, 255)) }

// askLater has a request go again in a moment, if there is patience left for a
// peer where no program listens. It reports whether it does.
func (h *timers) askLater(now clock.Time, c *conn) bool {
	c.heard = true
	if c.asking { // the peer has said so twice
		return true
	}
	if c.asks == 0 || c.message == nil {
		return false
	}
	c.asks--
	c.asking = true
	h.set(c, now.Add(askPause))
	return true
}

// askAgain reports whether it is that moment, and starts the timer for the case
// that the request, or what the peer says, is lost.
func (h *timers) askAgain(now clock.Time, c *conn) bool {
	if !c.asking || c.state != StateREQSent && c.state != StateSIDRSent {
		return false
	}
	c.asking, c.extended = false, false
	h.set(c, now.Add(time.Duration(c.interval)*time.Microsecond))
	return true
}
