// Package wake decides which goroutine receives for a link, which sleeps, and
// which is woken. It has no goroutine, lock, clock or socket: an input and the
// time go in, what is to be done comes out, and package hca does it.
//
// A packet that must wake one goroutine to be received and a second one to be
// seen costs twice. So the goroutine that wants a completion receives for
// itself whenever it can (the leader/followers pattern): it owns the receive
// side of the link. At most one goroutine owns it, and only the owner sleeps in
// the link. Receiving itself is open to all that poll, one at a time.
//
// The owner (State, owner.go), with the inputs:
//
//	      Waits, Joins                Blocks
//	  ┌────────────────► a program, ──────────► a program, asleep
//	  │                    awake    ◄────────── in the link
//	  │      Leaves          │       Unblocks
//	free ◄───────────────────┘
//	  ▲
//	  │      Takes
//	  ├────────────────► the receiver: the link's own goroutine
//	  │      Received        │
//	  └──────────────────────┘
//
// A program that finds an owner sleeps beside it (Joins). Completions wake it.
// So does the receiver when it leaves: that program then waits anew, and owns.
// A program that leaves while others sleep beside it wakes the receiver.
//
// The receiver (State and Receiver, receiver.go). What it decides by itself is
// in brackets:
//
//	            Received [programs do it better]
//	receives ─────────────────────────────────────► stands by ◄──┐
//	   ▲                                             │  │  ▲     │ Tick
//	   │   Tick [no owner, and it is quiet], Returns │  │  └─────┘
//	   └─────────────────────────────────────────────┘  │
//	                Leaves, Calls, Unlocked             │ Tick [quiet: the
//	   stands by ◄──────────────────────── asleep ◄─────┘ owner is enough]
//
// How long the owner looks for the next packet before it sleeps is an account
// of time (Account, account.go). In the middle of a bulk transfer it is a
// number of polls (Bulk). A program that waits for a completion polls first
// (Spin). One that looks at its memory between two calls is told apart by what
// it does after answers have come (Habit, habit.go), and Watch says for how
// long a poll of it goes on.
//
// State, Bulk and Habit are values: package hca keeps each in an atomic word
// and replaces it by compare and swap. So each input is one step that no other
// input divides.
//
// Callers (callers.go) is the same pattern one floor up: the calls that wait on
// one connection of packages rdma and rdmanet, of which one takes the
// completions for all. It is a type beside State for one reason: what a
// follower waits for. Those of a link wait for anything to come, so that any of
// them can take over, and a number of them, in a word without a lock, is all
// that is to be known: the word is read for each packet and for each poll.
// Each call waits for a result of its own, and exactly that one must be woken
// when it has come. So Callers has a list of them, which fits into no word, and
// has the lock of the connection, under which the results are.
//
// All time constants and numbers of polls, with the reason for each, are in
// table.go.
package wake
