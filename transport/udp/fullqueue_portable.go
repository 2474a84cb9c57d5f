//go:build !linux || portable

package udp

import (
	"errors"
	"time"

	"github.com/gosoftroce/rocev2/transport"
)

// fullQueue is the queue of an interface that may have no room for a packet
// (ENOBUFS). macOS and the BSDs do not wait for room, and do not tell when
// there is some.
type fullQueue struct {
	waited int // pauses since a packet was sent
}

// mayWait waits for a moment if the queue is full, and reports whether to send
// again. If that lasts, the following packets fail at once until one is sent.
func (q *fullQueue) mayWait(err error, stats *transport.LinkCounters) bool {
	if q.waited == maxStarved || !errors.Is(err, noRoom) {
		return false
	}
	q.waited++
	stats.SendWaited()
	time.Sleep(starvePause)
	return true
}
