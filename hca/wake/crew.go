package wake

import "slices"

// Crew are the calls that wait for what completes on one queue: State for those
// that have a lock of their own. One of them, the leader, takes the completions
// for all; the others sleep until it has found what they wait for, or until
// they are to lead. T is a call. The zero value has none.
//
//	         Lead                   Leave
//	waits ─────────► leads ──────────────────► gone
//	  │                ▲                        ▲
//	  │ Follow         │ Next: woken, Unfollow, │ woken with what it waits
//	  ▼                │ and Lead               │ for: Unfollow
//	follows ───────────┴────────────────────────┘
type Crew[T comparable] struct {
	leads     bool
	followers []T
}

// Lead makes the caller the leader. It reports false if there is one.
func (c *Crew[T]) Lead() bool {
	if c.leads {
		return false
	}
	c.leads = true
	return true
}

// Leads reports whether there is a leader.
func (c *Crew[T]) Leads() bool { return c.leads }

// Leave ends what Lead has begun. The caller then wakes Next, unless it goes on
// by leading again.
func (c *Crew[T]) Leave() { c.leads = false }

// Follow adds a call that sleeps.
func (c *Crew[T]) Follow(t T) { c.followers = append(c.followers, t) }

// keptFollowers is for how many the memory is kept when all have gone.
const keptFollowers = 8

// Unfollow takes it out.
func (c *Crew[T]) Unfollow(t T) {
	if i := slices.Index(c.followers, t); i >= 0 {
		c.followers = slices.Delete(c.followers, i, i+1)
	}
	if len(c.followers) == 0 && cap(c.followers) > keptFollowers {
		c.followers = nil
	}
}

// Followers returns the calls that sleep, in the order in which they came.
func (c *Crew[T]) Followers() []T { return c.followers }

// Next returns the call that is to be woken to lead: the first, if there is no
// leader.
func (c *Crew[T]) Next() (t T, ok bool) {
	if c.leads || len(c.followers) == 0 {
		return t, false
	}
	return c.followers[0], true
}
