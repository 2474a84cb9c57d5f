package hca

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// vigil decides how long the poller of a shard looks for the next packet before
// it goes to sleep in the link: its own receiver, or a program that waits.
// Memory that peers read and write has no program that polls. There the next
// request of a peer that waits for each answer comes some microseconds later,
// and to be woken for it costs both ends more than to stay awake.
//
// It is an account of time. A packet that comes while the poller looks, and
// that a queue pair takes, is worth wakeWorth, and costs the time it was waited
// for. The time spent on nothing, or on packets that no queue pair takes, is at
// most what the others have earned, and a small share of all time, which shows
// when looking pays again.
type vigil struct {
	credit time.Duration // may be spent
	since  clock.Time    // up to when the share is in it
	gap    time.Duration // how long packets were waited for, on average; 0: not known
	banned time.Duration // for how long the last ban was
	until  clock.Time    // when that ends
}

const (
	// wakeWorth is what it is worth not to wake a goroutine for a packet:
	// some 10 µs of latency, and as much processor time.
	wakeWorth = 30 * time.Microsecond

	// The poller looks for a packet for several times the average wait,
	// within bounds.
	vigilGaps     = 4
	shortestVigil = 20 * time.Microsecond
	longestVigil  = 50 * time.Microsecond

	// vigilShare is the part of all time that may be spent on nothing
	// whatever comes; most of it is kept for later.
	vigilShare    = 128
	maxVigilSpare = 8 * longestVigil

	// preempted is how long a look takes only if another thread had the
	// processor. Then more threads want one than there are processors, and
	// the poller sleeps for a while, longer each time.
	preempted   = 200 * time.Microsecond
	shortestBan = 10 * time.Millisecond
	longestBan  = time.Second

	// vigilPolls bounds the number of looks for one packet. Every
	// vigilClockPolls looks the poller looks at the time, and every
	// vigilYieldPolls whether others wait for a processor.
	vigilPolls      = 256
	vigilClockPolls = 4
	vigilYieldPolls = 64
)

// earn adds the share of the time until now.
func (v *vigil) earn(now clock.Time) {
	v.credit = min(v.credit+now.Sub(v.since)/vigilShare, maxVigilSpare)
	v.since = now
}

// limit returns how long to look for the next packet from now on; 0: not at
// all.
func (v *vigil) limit(now clock.Time) time.Duration {
	if now < v.until {
		return 0
	}
	d := longestVigil
	if v.gap > 0 {
		d = min(max(vigilGaps*v.gap, shortestVigil), longestVigil)
	}
	if v.credit < d {
		return 0
	}
	return d
}

// came records that a packet came after the time waited.
func (v *vigil) came(waited time.Duration) {
	v.credit = min(v.credit+wakeWorth-waited, maxVigilSpare)
	if v.gap == 0 {
		v.gap = waited
	}
	v.gap += (waited - v.gap) / 8
	v.gap = max(v.gap, 1)
}

// vain records that none came for that time. The next one may come later, too.
func (v *vigil) vain(waited time.Duration) {
	v.credit -= waited
	if v.gap > 0 {
		v.gap += (longestVigil - v.gap) / 8
	}
}

// ban records at now that another thread wants the processor. One that wants it
// all the time gets nearly all of it; one that wants it now and then costs
// little.
func (v *vigil) ban(now clock.Time) {
	if now > v.until.Add(8*v.banned) {
		v.banned = 0 // it is rare
	}
	v.banned = min(max(2*v.banned, shortestBan), longestBan)
	v.until = now.Add(v.banned)
}

// vigils is how many pollers of the process are awake. Some processors are
// left to others.
var vigils atomic.Int32

func beginVigil() bool {
	if vigils.Add(1) <= max(int32(runtime.GOMAXPROCS(0)/2), 1) {
		return true
	}
	vigils.Add(-1)
	return false
}

// keep looks for packets for as long as that pays, or until done. The caller is
// the poller of s, which the vigil belongs to.
func (v *vigil) keep(s *shard, later bool, done func() bool) {
	start := s.now()
	v.earn(start)
	limit := v.limit(start)
	if limit == 0 || !beginVigil() {
		return
	}
	defer vigils.Add(-1)
	looked := start
	for polls, all := 0, 1; limit > 0 && !done(); all++ {
		if all%vigilYieldPolls == 0 {
			s.yield.toOthers()
		}
		n, taken := s.receiveAs(true, later)
		polls++
		if n == 0 && later {
			s.flushIdle()
		}
		if n == 0 && polls%vigilClockPolls != 0 {
			continue
		}
		if n > 0 {
			s.handlers.letRun()
		}
		now := s.now()
		if n == 0 && now.Sub(looked) > preempted {
			v.ban(now)
			return
		}
		looked = now
		waited := min(now.Sub(start), longestVigil) // more: the host paused
		switch {
		case taken:
			v.earn(now)
			v.came(waited)
			limit = v.limit(now)
			start, polls = now, 0
		case waited >= limit || polls >= vigilPolls:
			v.vain(waited)
			return
		}
	}
}
