package owner

import "time"

const (
	// ownSlot is the owner's own: where packets for queue pair 1 arrive.
	ownSlot = 1
	// quietFor is how long nothing has come to a slot before it is free
	// again, and restMost is how long it rests at most. A peer that has
	// lost its connection sends for the time of its retries, which is
	// seconds.
	quietFor = 2 * time.Second
	restMost = 60 * time.Second
	// lookEvery is how often the slots that rest are looked at.
	lookEvery = 250 * time.Millisecond
)

type slotState uint8

const (
	slotFree slotState = iota
	slotLeased
	slotResting
	slotLost // a leaseholder has spoilt its socket
)

// slot is what is known of one.
type slot struct {
	state slotState
	uid   uint32    // leased or resting: of whose process it is or was
	since time.Time // of the state; zero: it was never leased
	quiet time.Time // resting: since when nothing has come
	drops uint64    // resting: what it had dropped then
}

// table says which slots are free.
type table []slot

func newTable(n int) table {
	t := make(table, n)
	t[ownSlot].state = slotLeased
	return t
}

// find returns the first of k consecutive free slots, a multiple of k: of those
// that have been free for longest.
func (t table) find(k int) (first int, ok bool) {
	var since time.Time
	for i := 0; i+k <= len(t); i += k {
		at, free := t.freeSince(i, k)
		if free && (!ok || at.Before(since)) {
			first, since, ok = i, at, true
		}
	}
	return first, ok
}

// lease leases k slots to a process of a user.
func (t table) lease(now time.Time, first, k int, uid uint32) {
	t.set(first, k, slot{state: slotLeased, uid: uid, since: now})
}

// scarce reports whether fewer than half of the slots are free.
func (t table) scarce() bool { return t.count(slotFree) < len(t)/2 }

// of returns how many slots a user's processes have, or have had until a moment
// ago.
func (t table) of(uid uint32) (n int) {
	for i := range t {
		if s := &t[i]; i != ownSlot && s.uid == uid && (s.state == slotLeased || s.state == slotResting) {
			n++
		}
	}
	return n
}

// freeSince reports whether k slots are free, and since when all are.
func (t table) freeSince(first, k int) (since time.Time, ok bool) {
	for _, s := range t[first : first+k] {
		if s.state != slotFree {
			return since, false
		}
		if s.since.After(since) {
			since = s.since
		}
	}
	return since, true
}

func (t table) set(first, k int, s slot) {
	for i := range k {
		t[first+i] = s
	}
}

// rest ends the lease of k slots.
func (t table) rest(now time.Time, first, k int, drops func(slot int) uint64) {
	for i := first; i < first+k; i++ {
		t[i] = slot{state: slotResting, uid: t[i].uid, since: now, quiet: now, drops: drops(i)}
	}
}

// look frees the slots that have rested. It reports whether any still rests.
func (t table) look(now time.Time, drops func(slot int) uint64) (more bool) {
	for i := range t {
		s := &t[i]
		if s.state != slotResting {
			continue
		}
		if d := drops(i); d != s.drops {
			s.drops, s.quiet = d, now
		}
		if now.Sub(s.quiet) >= quietFor || now.Sub(s.since) >= restMost {
			*s = slot{since: now}
			continue
		}
		more = true
	}
	return more
}

// count returns how many slots are in a state.
func (t table) count(state slotState) (n int) {
	for i := range t {
		if t[i].state == state {
			n++
		}
	}
	return n
}
