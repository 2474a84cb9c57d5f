package wake

import "time"

// The receiver that stands by.
const (
	// standbyTick is how long the receiver gives programs before it takes
	// over: a program that was Preempted for less is not replaced. While
	// they keep busy it looks less often, up to MaxStandbyTick: an answer
	// that a program has left unsent waits that long at most.
	standbyTick    = 250 * time.Microsecond
	MaxStandbyTick = time.Millisecond

	// StandbyBan is how long the receiver then stays when it has found
	// packets: the programs had left them, and may do so again. It is
	// longer than a time slice of a busy host.
	StandbyBan = 20 * time.Millisecond

	// OutrunBatches is how many batches programs take before the receiver,
	// which sleeps in the link, is told that it gets none. Each costs a
	// wakeup inside the kernel.
	OutrunBatches = 8
)

// The owner that looks for the next packet before it sleeps.
const (
	// WakeWorth is what it is worth not to wake a goroutine for a packet:
	// some 10 µs of latency, and as much processor time.
	WakeWorth = 30 * time.Microsecond

	// It looks for several times the average wait, within bounds: a longer
	// look costs more than WakeWorth on average.
	LookGaps     = 4
	shortestLook = 20 * time.Microsecond
	LongestLook  = 50 * time.Microsecond

	// LookShare is the part of all time that may be spent on nothing
	// whatever comes, so that it shows when looking pays again: less than
	// one percent. A part of it is kept for later: MaxCredit.
	LookShare = 128
	MaxCredit = 8 * LongestLook

	// Preempted is how long one look takes only if another thread had the
	// processor. Then more threads want one than there are processors, and
	// the owner does not look for a while, longer each time, so that such a
	// thread gets nearly all of the processor.
	Preempted   = 200 * time.Microsecond
	shortestBan = 10 * time.Millisecond
	longestBan  = time.Second

	// lookPolls bounds the number of looks for one packet where the clock
	// stands still. A clock reading costs 45 ns, a look that finds nothing
	// some 400: so the time is read every ClockPolls looks. Every
	// yieldPolls looks, some 25 µs, others may have the processor.
	lookPolls  = 256
	ClockPolls = 4
	yieldPolls = 64
)

// Bulk transfers.
const (
	// BulkPackets at once are a bulk transfer.
	BulkPackets = 8

	// BulkPolls without a packet are some 100 µs: longer than a sender
	// takes for its next buffer. leastBulkPolls find out whether it pays
	// again.
	BulkPolls      = 200
	leastBulkPolls = 4
)

// Programs that poll.
const (
	// DefaultSpin polls before a program sleeps cost some tens of
	// microseconds, a little more than waking two goroutines does. MaxSpin
	// polls are some seconds.
	DefaultSpin = 32
	MaxSpin     = 1 << 20

	// YieldEvery is after how many polls of programs that found nothing
	// others may have the processor: some 25 µs.
	YieldEvery = 64

	// Sleepless is after how many posts in a row without a wait a program
	// counts as one that never sleeps.
	Sleepless = 8

	// MostPollsOn bounds what is remembered of a program that polls on
	// after answers. One that looks at its memory posts next at least two
	// times out of three, or it does not count as one.
	MostPollsOn = 16
)

// MostLooking is how many owners of a process may look for packets at a time,
// with a number of processors: the others are left to programs.
func MostLooking(processors int) int { return max(processors/2, 1) }

// SpinCount returns how many times a program polls before it sleeps. asked is
// what it has asked for: 0 is the default, a negative number none. With one
// processor it is the other side that needs it.
func SpinCount(asked, processors int) int {
	switch {
	case asked < 0:
		return 0
	case asked > 0:
		return min(asked, MaxSpin)
	case processors == 1:
		return 1
	}
	return DefaultSpin
}
