package wake

import "slices"

// Callers are the calls of one connection that wait for what completes on its
// queue. One of them, the leader, takes the completions for all. The others,
// the followers, sleep until it has found what they wait for, or until they are
// to lead. T is a call. The zero value has none, and the lock of the connection
// guards it: State, of the receive side of a link, has no lock.
//
//	         Lead                   Leave
//	waits ─────────► leads ──────────────────► gone
//	  │                ▲                        ▲
//	  │ Follow         │ Next: woken, Unfollow, │ woken with what it waits
//	  ▼                │ and Lead               │ for: Unfollow
//	follows ───────────┴────────────────────────┘
type Callers[T comparable] struct {
	leads     bool
	followers []T
}

// Lead makes a call the leader. It reports false if there is one.
func (c *Callers[T]) Lead() bool {
	if c.leads {
		return false
	}
	c.leads = true
	return true
}

// Leads reports whether there is a leader.
func (c *Callers[T]) Leads() bool { return c.leads }

// Leave ends what Lead has begun. The call then wakes Next, unless it leads
// again.
func (c *Callers[T]) Leave() { c.leads = false }

// Follow adds a call that sleeps.
func (c *Callers[T]) Follow(t T) { c.followers = append(c.followers, t) }

// keptFollowers is for how many the memory is kept when all have gone.
const keptFollowers = 8

// Unfollow takes it out.
func (c *Callers[T]) Unfollow(t T) {
	if i := slices.Index(c.followers, t); i >= 0 {
		c.followers = slices.Delete(c.followers, i, i+1)
	}
	if len(c.followers) == 0 && cap(c.followers) > keptFollowers {
		c.followers = nil
	}
}

// Followers returns the calls that sleep, in the order in which they came.
func (c *Callers[T]) Followers() []T { return c.followers }

// Next returns the call that is to be woken to lead: the first, if there is no
// leader.
func (c *Callers[T]) Next() (t T, ok bool) {
	if c.leads || len(c.followers) == 0 {
		return t, false
	}
	return c.followers[0], true
}
