package guard

import "github.com/gosoftroce/rocev2/internal/counters"

// Add adds the counters of o, as a device with several links does.
func (c *Counters) Add(o *Counters) { counters.Add(c, o) }

// Bound has no counter be more than most: those that another process tells may
// be any.
func (c *Counters) Bound(most uint64) { counters.Bound(c, most) }

// Dropped returns how many packets were dropped, or did not leave.
func (c *Counters) Dropped() (n uint64) {
	c.Each(func(_ string, v uint64) { n += v })
	return n - c.Sealed - c.Opened - c.Waited
}
