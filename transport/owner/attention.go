package owner

import "time"

// attention decides how long the owner looks for the next management datagram
// before it sleeps. A connection is made by several, one after the other, each
// of which waits for the one before: to sleep and be woken for each costs more
// than all else that the owner does for them.
//
// It is an account of time. A datagram that comes while the owner looks, and
// is passed on, is worth lookWorth, and costs what it was waited for. What is
// spent on nothing is at most what those have earned, and a small share of all
// time.
type attention struct {
	credit time.Duration // may be spent
	since  time.Duration // up to when the share is in it
	until  time.Duration // no look before: another process wants the processor
}

const (
	lookFor   = 50 * time.Microsecond
	lookWorth = 30 * time.Microsecond
	lookShare = 128 // of all time
	lookSpare = 8 * lookFor

	// lookPreempted is how long a look takes only if another process had
	// the processor. Then the owner sleeps at once, for lookBan.
	lookPreempted = 200 * time.Microsecond
	lookBan       = 10 * time.Millisecond
)

// may reports at now whether to look.
func (a *attention) may(now time.Duration) bool {
	a.credit = min(a.credit+(now-a.since)/lookShare, lookSpare)
	a.since = now
	return now >= a.until && a.credit >= lookFor
}

// came says that a datagram was passed on after a wait.
func (a *attention) came(waited time.Duration) {
	a.credit = min(a.credit+lookWorth-waited, lookSpare)
}

// nothing says that none came in the time waited.
func (a *attention) nothing(waited time.Duration) { a.credit -= min(waited, lookFor) }

// interrupted says at now that another process had the processor.
func (a *attention) interrupted(now time.Duration) { a.until = now + lookBan }
