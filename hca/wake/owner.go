package wake

// State says which goroutine receives for a link; doc.go has the drawing. The
// zero value has no owner, and a receiver that is about to take over.
type State uint64

// The owner of the receive side: none, or one of these.
const (
	byReceiver State = 1 << iota // the link's own goroutine
	byProgram                    // a program
	Asleep                       // which sleeps in the link, or is about to
	owner      = byReceiver | byProgram | Asleep
)

// What else is known.
const (
	StandsBy State = 1 << (3 + iota) // the receiver looks every tick whether programs receive; these may leave answers for their next call
	Dormant                          // it does so only when it is Called
	InLink                           // it sleeps in the link, or is about to
	Active                           // a program has polled or waited since it has looked
	Called                           // a program does not poll any more: it is to come at once
	Late                             // answers wait for the program's next call
	Prompt                           // what the program posts next takes them along
	told                             // a thread beside the owner was woken by what has come

	// Abandoned: answers wait, and all sleep that would send them.
	Abandoned = Late | Dormant | Asleep

	outrunOne  State = 1 << 12 // batches that programs have taken while it slept in the link
	outrunAll  State = 15 << 12
	parkedOne  State = 1 << 16 // goroutines that sleep beside the owner
	parkedAll  State = (1<<24 - 1) << 16
	threadsOne State = 1 << 40 // threads that do
	threadsAll State = (1<<24 - 1) << 40
)

// Input is what happens.
type Input uint8

// What programs do.
const (
	Polled     Input = iota // a program polls, or is about to wait
	Waits                   // it waits: it receives if no other does
	Joins                   // likewise; else it sleeps beside the owner
	JoinsAside              // likewise, as a thread
	StaysAside              // it sleeps beside the owner if there is one or not, as a thread
	Parts                   // it sleeps beside the owner no more
	PartsAside              // likewise, as a thread
	Blocks                  // the owner is about to sleep in the link
	Unblocks                // it does so no more
	Leaves                  // it is the owner no more
	Calls                   // a program polls no more, and does not wait either
	Took                    // a program has taken a batch from the link
	Told                    // a program that waits by a file is about to be woken
	Defers                  // answers are left for the program's next call
	Sent                    // they are sent
	Unlocked                // the lock is given up under which Defers came
)

// What the receiver does; see Receiver for the rest.
const (
	Takes       Input = iota + Unlocked + 1 // it receives, if no program does
	BlocksOwn                               // it is about to sleep in the link
	UnblocksOwn                             // it does so no more
	Tick                                    // it stands by, and its time has come
	Returns                                 // it stands by no more
)

// Act is what is to be done, a set.
type Act uint8

const (
	// Own has the caller receive: it is the owner.
	Own Act = 1 << iota
	// SendFirst has the caller send what waits in place of going to sleep.
	SendFirst
	// WakeReceiver wakes the receiver, which stands by.
	WakeReceiver
	// WakeLink ends the receiver's sleep in the link.
	WakeLink
	// HandOver wakes a goroutine that sleeps beside the owner.
	HandOver
	// Sleep has the receiver sleep until it is woken, and not for a tick.
	Sleep
	// ComeBack has the receiver stand by no more.
	ComeBack
	// AckFirst has the acknowledgements that are sent now go first.
	AckFirst
)

// On returns the state after an input, and what is to be done.
func (s State) On(in Input) (State, Act) {
	switch in {
	case Polled:
		return s | Active, 0
	case Waits, Joins, JoinsAside, StaysAside:
		return s.waits(in)
	case Parts:
		return s - parkedOne, 0
	case PartsAside:
		return s - threadsOne, 0
	case Blocks:
		if s&Late != 0 {
			return s, SendFirst
		}
		return s | Asleep, 0
	case Unblocks:
		return s &^ Asleep, 0
	case Leaves:
		s &^= owner
		if s&(Dormant|parkedAll|threadsAll) == 0 {
			return s, 0
		}
		return s &^ Dormant, WakeReceiver
	case Calls:
		if s&StandsBy == 0 {
			return s, 0
		}
		return s&^Dormant | Called, WakeReceiver
	case Took:
		return s.took()
	case Told:
		if s |= Prompt; s&threadsAll != 0 {
			s |= told
		}
		return s, 0
	case Defers:
		return s | Late, 0
	case Sent:
		if s&Prompt != 0 {
			return s &^ (Late | Prompt), AckFirst
		}
		return s &^ Late, 0
	case Unlocked: // the program that has left answers may not come back
		if s&Abandoned == Abandoned {
			return s &^ Dormant, WakeReceiver
		}
		return s, 0
	}
	return s.onReceiver(in)
}

// took is a batch that a program has taken before the receiver.
func (s State) took() (State, Act) {
	if s&InLink == 0 || s&outrunAll == OutrunBatches*outrunOne {
		return s, 0
	}
	if s += outrunOne; s&outrunAll == OutrunBatches*outrunOne {
		return s, WakeLink
	}
	return s, 0
}

// waits is a program that waits.
func (s State) waits(in Input) (State, Act) {
	s |= Active
	switch {
	case in == StaysAside:
		return s + threadsOne, 0
	case s&owner == 0:
		return s | byProgram, Own
	case in == Joins:
		return s + parkedOne, 0
	case in == JoinsAside:
		return s + threadsOne, 0
	}
	return s, 0
}

// Owned reports whether a goroutine receives.
func (s State) Owned() bool { return s&owner != 0 }

// Parked returns how many goroutines sleep beside the owner.
func (s State) Parked() int { return int(s & parkedAll / parkedOne) }

// Threads returns how many threads do.
func (s State) Threads() int { return int(s & threadsAll / threadsOne) }
