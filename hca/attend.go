package hca

import (
	"time"

	"github.com/gosoftroce/rocev2/clock"
)

// attendance says how long the receiver stays awake for programs of other
// processes. They keep a processor busy when they poll, and so does it: each
// gives the processor to the other when it has found nothing. Nobody is woken
// then, which costs more than all else where it takes a message to another
// processor.
//
// A program that looks at memory only keeps the processor for milliseconds, and
// so does who computes. Where the receiver loses more by that than it gains, it
// sleeps between packets, and is woken for them.
type attendance struct {
	on     bool          // the receiver attends; guarded by the shard's lock
	credit time.Duration // what it has gained, less what it has lost
	until  clock.Time    // when it attends again
	absent time.Duration // for how long it did not
	posted clock.Time    // when a program has posted
}

const (
	// The receiver stays for attendWhile after a program has polled, while
	// something has come in the last attendLongest; and always for
	// attendLooks.
	attendWhile   = 4 * time.Microsecond
	attendLongest = 2 * time.Millisecond
	attendLooks   = 5

	// attendWorth is what it is worth that nobody had to be woken for a
	// packet or a request, and bulkWorth in a bulk transfer. mostCredit is
	// the most that is gained by that, and mostDebt by how much less one
	// goes on.
	attendWorth = 10 * time.Microsecond
	bulkWorth   = 100 * time.Microsecond
	mostCredit  = 5 * time.Millisecond
	mostDebt    = time.Millisecond

	// lostTurn is how long it takes to get the processor back from somebody
	// who does not give it away.
	lostTurn = 150 * time.Microsecond
	// mostBulkLost is the most that counts of it in a bulk transfer.
	mostBulkLost = 250 * time.Microsecond

	shortestAbsence = 5 * time.Millisecond
	longestAbsence  = time.Second

	// A program that has posted in that time, and neither polls nor waits,
	// looks at memory.
	looksAtMemory = time.Millisecond
)

// took takes note that something has come, after others had the processor for
// so long. In a bulk transfer that is the turn of another one who is busy with
// it, as often as not.
func (t *attendance) took(now clock.Time, bulk bool, away time.Duration) {
	worth := attendWorth
	if bulk {
		worth, away = bulkWorth, min(away, mostBulkLost)
	}
	if t.gain(worth); away > lostTurn {
		t.lose(now, away)
	}
}

// gain takes note that something has come, and of what that is worth.
func (t *attendance) gain(worth time.Duration) {
	t.credit += worth
	if t.credit >= mostCredit {
		t.credit, t.absent = mostCredit, 0
	}
}

// lose takes note at now that something has waited while somebody else had the
// processor, for so long at most.
func (t *attendance) lose(now clock.Time, waited time.Duration) {
	t.credit -= waited
	if t.credit > -mostDebt {
		return
	}
	t.absent = min(max(2*t.absent, shortestAbsence), longestAbsence)
	t.until, t.credit = now.Add(t.absent), 0
}

// attend receives, and looks beside the link, for as long as programs poll.
// Acknowledgements wait until a program has had the processor: they leave with
// what it posts.
//
// It reports whether to look longer, though nobody polls: not where a program
// looks at memory, which has to have the processor.
func attend(s *shard, a Aside) (more bool) {
	setAttending(s, true)
	defer setAttending(s, false)
	a.Attend(true)
	defer a.Attend(false)
	t := &s.attendance
	left := s.now() // to others
	came, polled := left, left
	for vain := 0; ; {
		away := s.now().Sub(left)
		any := attendOnce(s, a)
		now := s.now()
		if any || s.bulk.Load() {
			came, vain = now, 0
			t.took(now, s.bulk.Swap(false), away)
		}
		left = now
		if a.Polling(now) {
			polled = now
		}
		if vain >= attendLooks && (now < t.until || now.Sub(polled) > attendWhile || now.Sub(came) > attendLongest) {
			return a.Notified() || now.Sub(t.posted) > looksAtMemory
		}
		if vain > 0 {
			flushExpired(s, now)
		}
		if vain++; vain%vigilYieldPolls == 0 {
			s.yield.toOthers()
		} else {
			yieldOften()
		}
	}
}

// setAttending says whether the receiver will soon see to answers that wait.
func setAttending(s *shard, on bool) {
	s.lock()
	s.attendance.on = on
	s.unlock()
}

// attendOnce receives, and looks beside the link. It reports whether there was
// anything.
func attendOnce(s *shard, a Aside) bool {
	n, _ := s.receiveAs(true, true)
	held := s.poller.delayed.Load()
	posted := a.Look()
	if n > 0 {
		s.handlers.letRun()
	}
	if posted {
		s.attendance.posted = s.now()
	}
	if posted && held {
		s.lock()
		s.eng.AckDelay().Paid()
		s.unlock()
	}
	return n > 0 || posted
}

// flushExpired sends acknowledgements that have waited for long enough.
func flushExpired(s *shard, now clock.Time) {
	if s.poller.delayed.Load() {
		s.lock()
		s.flushFor(now, nil, !s.eng.AckDelay().Expired(now))
		s.unlock()
	}
}
