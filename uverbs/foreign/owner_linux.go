package foreign

import (
	"sync"
	"sync/atomic"
	"time"
)

// How long copies of another user's memory may take. Who copies holds a lock
// that others need, so this is what he can take from them.
const (
	// patience is how long they may wait at a stretch. It comes back in
	// twice the time that it was used in: so in the long run a user's
	// copies wait for half of the time at the most.
	patience = 200 * time.Millisecond
	comeback = 2
	// usual is how long a copy takes where nobody waits.
	usual = 200 * time.Microsecond
	// penance is for how long a user whose copies have taken longer has
	// none, and gets no space.
	penance = time.Minute

	// A copier may be late for another reason: its process is stopped, or
	// polls on a processor that the copier waits for, for some ms. lateness
	// is for one of the own user what patience is, without penance. prompt
	// is what is usual: as what is above it comes back, copies that take
	// twice as long, one behind the other, are no reason for penance.
	lateness = 2 * time.Second
	prompt   = 5 * time.Millisecond
)

// owner is a user whose memory is copied by couriers.
type owner struct {
	refused atomic.Bool // perhaps: mu guards the truth

	mu    sync.Mutex
	used  time.Duration // of the patience
	asOf  time.Time
	until time.Time // when the penance ends
	held  int       // couriers that have been left alone, and are not back

	late     time.Duration // used of the lateness
	lateAsOf time.Time
}

// owners are the users that have been here.
var owners = struct {
	sync.Mutex
	of map[uint32]*owner
}{of: map[uint32]*owner{}}

func ownerOf(uid uint32) *owner {
	owners.Lock()
	defer owners.Unlock()
	o := owners.of[uid]
	if o == nil {
		o = new(owner)
		owners.of[uid] = o
	}
	return o
}

// left returns for how long the user's memory is not copied.
func (o *owner) left() time.Duration {
	if !o.refused.Load() {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	d := time.Until(o.until)
	if o.held > 0 {
		d = max(d, penance)
	}
	if d <= 0 {
		o.refused.Store(false)
		o.used = 0
	}
	return max(d, 0)
}

// refuse begins the penance. The owner is locked.
func (o *owner) refuse(now time.Time) {
	o.until = now.Add(penance)
	o.refused.Store(true)
}

// patienceLeft returns how long a copy may take.
func (o *owner) patienceLeft() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recover(time.Now())
	return patience - o.used
}

// recover gives patience back. The owner is locked.
func (o *owner) recover(now time.Time) {
	o.used = max(0, o.used-now.Sub(o.asOf)/comeback)
	o.asOf = now
}

// took says how long a copy has taken.
func (o *owner) took(d time.Duration) {
	if d <= usual {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.recover(now)
	if o.used += d - usual; o.used >= patience {
		o.refuse(now)
	}
}

// lost says that a courier has been left alone, and found that it is back.
func (o *owner) lost() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held++
	o.refuse(time.Now())
}

func (o *owner) found() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held--
	o.refuse(time.Now())
}

// answered says how long a copier has been waited for.
func (o *owner) answered(d, most time.Duration) {
	if d > prompt {
		o.waited(d-prompt, most)
	}
}

// silent says how long a copier has been waited for in vain that owed an answer
// already. No part of that is usual.
func (o *owner) silent(d time.Duration) { o.waited(d, patience) }

// waited uses up a part of what the user has: most.
func (o *owner) waited(d, most time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	o.late = max(0, o.late-now.Sub(o.lateAsOf)/comeback) + d
	o.lateAsOf = now
	if o.late >= most {
		o.refuse(now)
	}
}
