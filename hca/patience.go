package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// A lone acknowledgement costs a datagram at both ends, just when a program
// that polls is about to answer, or to take, the next message. So it waits: for
// what the program posts, and then for a while whether another message comes
// that one acknowledgement can stand for as well. Whether that is worth while
// the peer shows. One that sends its next message without the acknowledgement
// does not need it yet; one that stays silent may well be waiting for it.
const (
	ackWait     = 24 * time.Microsecond // how long an acknowledgement waits for the next message
	ackBatchMax = 8                     // batches of messages that one acknowledgement stands for
	// ackTryMin and ackTryMax bound how many acknowledgements go at once after
	// waiting was in vain, before it is tried again.
	ackTryMin = 16
	ackTryMax = 4096
)

// patience is how a shard's lone acknowledgements wait.
type patience struct {
	since   clock.Time // when the latest message came whose acknowledgement waits; 0: none waits
	batches int        // that it stands for
	prompt  int        // how many more go at once; 0: they wait
	again   int        // how many that will be after the next wait in vain
}

// more takes note of a batch with requests that is left unanswered at now. It is
// false when its acknowledgement should not wait any longer.
func (p *patience) more(now clock.Time) bool {
	switch {
	case p.since == 0:
		p.prompt = max(p.prompt-1, 0)
	case p.prompt == 0:
		p.again = ackTryMin // it came without the acknowledgement
	}
	p.since = now
	p.batches++
	return p.batches < ackBatchMax+deferMax
}

// over reports at now, when nothing more has come, whether the wait is over.
func (p *patience) over(now clock.Time) bool {
	switch {
	case p.since == 0 || p.prompt > 0 || p.batches >= ackBatchMax:
		return true
	case now < p.since+clock.Time(ackWait):
		return false
	}
	p.prompt = max(p.again, ackTryMin)
	p.again = min(2*p.prompt, ackTryMax)
	return true
}

// sent takes note that nothing waits any more.
func (p *patience) sent() { p.since, p.batches = 0, 0 }
