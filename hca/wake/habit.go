package wake

// Bulk says how long the owner goes on receiving in the middle of a bulk
// transfer when nothing comes. Where packets came meanwhile it is longer the
// next time, and shorter where none did: many processes share the processors,
// and the peer's process needs one to send the next packet. The zero value has
// no transfer under way.
type Bulk uint32

const underWay Bulk = 1 << 31

// Came records that a bulk transfer is under way.
func (b Bulk) Came() Bulk { return b | underWay }

// Over takes that back, for one that looks for more of it.
func (b Bulk) Over() Bulk { return b &^ underWay }

// UnderWay reports whether more of a transfer may come any moment.
func (b Bulk) UnderWay() bool { return b&underWay != 0 }

// Polls returns how many times to poll for it.
func (b Bulk) Polls() int { return BulkPolls - int(b&^underWay) }

// Paid records that packets came.
func (b Bulk) Paid() Bulk { return b&underWay | b&^underWay/2 }

// Failed records that none did.
func (b Bulk) Failed() Bulk {
	return b&underWay | Bulk(BulkPolls-max(b.Polls()/2, leastBulkPolls))
}

// Spin is how many times a program polls before it sleeps: more where that has
// found something, fewer where it has not.
type Spin struct {
	most, budget, done int
}

// NewSpin returns the polls of one wait; budget is what Left has returned for
// the wait before.
func NewSpin(most, budget int) Spin { return Spin{most: most, budget: budget} }

// Next reports whether to poll once more: in the middle of a bulk transfer it
// may be for longer.
func (s *Spin) Next(bulk int) bool { return s.done <= max(s.budget, bulk) }

// Polled records a poll. Where something came that was not what the program
// waits for, that is on its way.
func (s *Spin) Polled(progress bool) {
	if progress && s.done > 0 {
		s.budget = min(2*s.budget, s.most)
	}
	if s.done++; progress {
		s.done = 1
	}
}

// Found returns the budget of the next wait when this one has found what it
// waited for.
func (s *Spin) Found() int { return s.budget }

// Failed returns it when the program goes to sleep.
func (s *Spin) Failed() int { return max(s.budget/2, min(1, s.most)) }

// Habit is what is known of a program that may look at its memory between two
// calls: one that waits for a byte to change, after it has taken the completion
// of its own request, and does not call again before a peer has written there.
type Habit uint32

const (
	asked    Habit = 1 << iota // peers have asked for something since the program has said that it posts
	answered                   // what it has polled last were answers alone, and it has neither polled nor posted since
	watching                   // a poll of it goes on

	postsOne Habit = 1 << 8 // posts since it has waited, up to Sleepless
	postsAll Habit = 255 << 8
	onOne    Habit = 1 << 16 // how often it polls on after answers, without a post in between
	onAll    Habit = 255 << 16
)

// Asks records that a peer has asked for something.
func (h Habit) Asks() Habit { return h | asked }

// Posts records that the program is about to post.
func (h Habit) Posts() Habit {
	if h&answered != 0 { // it has looked at its memory meanwhile
		h = h&^onAll | onOne*Habit(max(h.pollsOn()-2, 0))
	}
	if h&postsAll < Sleepless*postsOne {
		h += postsOne
	}
	return h &^ (asked | answered)
}

// Sleeps records that the program waits.
func (h Habit) Sleeps() Habit { return h &^ postsAll }

// Polls records that the program polls.
func (h Habit) Polls() Habit {
	if h&answered == 0 {
		return h
	}
	if h.pollsOn() < MostPollsOn {
		h += onOne
	}
	return h &^ answered
}

// Polled records that the poll has found something. It reports whether to look
// for a request of a peer: if only answers have come since the program has
// posted, unless it is one that polls on all the same. What it has got waits
// meanwhile. The caller then looks, and calls Watched.
func (h Habit) Polled() (next Habit, watch bool) {
	if h&asked != 0 {
		return h, false
	}
	h |= answered
	if h.pollsOn() >= MostPollsOn/2 || h&watching != 0 {
		return h, false
	}
	return h | watching, true
}

// Watched ends what Polled has begun.
func (h Habit) Watched() Habit { return h &^ watching }

// Asked reports whether a peer has asked for something.
func (h Habit) Asked() bool { return h&asked != 0 }

// Watching reports whether a poll looks for a request of a peer.
func (h Habit) Watching() bool { return h&watching != 0 }

// Sleepless reports whether the program never sleeps.
func (h Habit) Sleepless() bool { return h&postsAll == Sleepless*postsOne }

func (h Habit) pollsOn() int { return int(h & onAll / onOne) }
