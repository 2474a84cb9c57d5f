package wake

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// Account decides how long the owner of a receive side looks for the next
// packet before it goes to sleep in the link. Memory that peers read and write
// has no program that polls. There the next request of a peer that waits for
// each answer comes some microseconds later, and to be woken for it costs both
// ends more than to stay awake.
//
// It is an account of time. A packet that comes while the owner looks, and that
// a queue pair takes, is worth WakeWorth, and costs the time it was waited for.
// The time spent on nothing, or on packets that no queue pair takes, is at most
// what the others have earned, and a small share of all time (LookShare).
type Account struct {
	credit time.Duration // may be spent
	since  clock.Time    // up to when the share is in it
	gap    time.Duration // how long packets were waited for, on average; 0: not known
	banned time.Duration // for how long the last ban was
	until  clock.Time    // when that ends
}

// NewAccount returns an account that has credit, and knows how long packets are
// waited for on average.
func NewAccount(now clock.Time, credit, gap time.Duration) Account {
	return Account{credit: credit, since: now, gap: gap}
}

// Credit returns how long may be spent on nothing.
func (a *Account) Credit() time.Duration { return a.credit }

// Banned returns until when the owner does not look.
func (a *Account) Banned() clock.Time { return a.until }

// earn adds the share of the time until now.
func (a *Account) earn(now clock.Time) {
	a.credit = min(a.credit+now.Sub(a.since)/LookShare, MaxCredit)
	a.since = now
}

// limit returns how long to look for the next packet from now on; 0: not at
// all.
func (a *Account) limit(now clock.Time) time.Duration {
	if now < a.until {
		return 0
	}
	d := LongestLook
	if a.gap > 0 {
		d = min(max(LookGaps*a.gap, shortestLook), LongestLook)
	}
	if a.credit < d {
		return 0
	}
	return d
}

// came records that a packet came after the time waited.
func (a *Account) came(waited time.Duration) {
	a.credit = min(a.credit+WakeWorth-waited, MaxCredit)
	if a.gap == 0 {
		a.gap = waited
	}
	a.gap += (waited - a.gap) / 8
	a.gap = max(a.gap, 1)
}

// missed records that none came for that time. The next one may come later,
// too.
func (a *Account) missed(waited time.Duration) {
	a.credit -= waited
	if a.gap > 0 {
		a.gap += (LongestLook - a.gap) / 8
	}
}

// Ban records at now that another thread wants the processor. One that wants it
// all the time gets nearly all of it; one that wants it now and then costs
// little.
func (a *Account) Ban(now clock.Time) {
	if now > a.until.Add(8*a.banned) {
		a.banned = 0 // it is rare
	}
	a.banned = min(max(2*a.banned, shortestBan), longestBan)
	a.until = now.Add(a.banned)
}

// Look is a time for which the owner looks for packets.
type Look struct {
	account *Account
	start   clock.Time // of the wait for the next packet
	looked  clock.Time
	limit   time.Duration
	polls   int // for the next packet
	all     int
}

// Begin begins to look at now, if that pays.
func (a *Account) Begin(now clock.Time) (l Look, ok bool) {
	a.earn(now)
	limit := a.limit(now)
	return Look{account: a, start: now, looked: now, limit: limit}, limit > 0
}

// Yields reports whether others may have the processor before the next look.
func (l *Look) Yields() bool {
	l.all++
	return l.all%yieldPolls == 0
}

// Polled counts a look. It reports whether the time is to be read for At: it
// is if anything came.
func (l *Look) Polled(found bool) bool {
	l.polls++
	return found || l.polls%ClockPolls == 0
}

// At is called at now, when a look has found something, which a queue pair has
// taken or not, or nothing. It reports whether to look on.
func (l *Look) At(now clock.Time, found, taken bool) bool {
	a := l.account
	if !found && now.Sub(l.looked) > Preempted {
		a.Ban(now)
		return false
	}
	l.looked = now
	waited := min(now.Sub(l.start), LongestLook) // more: the host paused
	switch {
	case taken:
		a.earn(now)
		a.came(waited)
		l.limit = a.limit(now)
		l.start, l.polls = now, 0
		return l.limit > 0
	case waited >= l.limit || l.polls >= lookPolls:
		a.missed(waited)
		return false
	}
	return true
}

// Watch is a time for which a poll of a program looks for a request of a peer.
// Whatever comes ends it.
type Watch struct {
	look      Look
	sleepless bool
}

// Watch begins to look at now, if that pays. A program that is sleepless has a
// processor of its own, or shares it with others whatever is done here. So it
// looks on where others have had the processor.
func (a *Account) Watch(now clock.Time, sleepless bool) (w Watch, ok bool) {
	l, ok := a.Begin(now)
	return Watch{l, sleepless}, ok
}

// Polled is as for Look.
func (w *Watch) Polled(found bool) bool { return w.look.Polled(found) }

// At is called at now, when a look has found a request, anything else, or
// nothing. It reports whether to look on, and whether the receiver is to take
// over at once: a program that never sleeps, and has looked for long enough,
// looks at its memory alone.
func (w *Watch) At(now clock.Time, found, request bool) (on, call bool) {
	l, a := &w.look, w.look.account
	if away := now.Sub(l.looked); away > Preempted {
		if !w.sleepless {
			a.Ban(now)
			return false, false
		}
		l.start = l.start.Add(away) // it has cost nothing
	}
	l.looked = now
	waited := now.Sub(l.start)
	switch {
	case request:
		a.came(min(waited, LongestLook))
		return false, false
	case found || waited >= l.limit:
		a.missed(min(waited, LongestLook))
		return false, w.sleepless && a.gap > 0
	}
	return true, false
}
