package programs

import (
	"sync"

	"github.com/gosoftroce/rocev2/transport/owner"
)

// mostEnded is how many leases are remembered after their end.
const mostEnded = 1024

// Ended remembers leases that have ended.
type Ended struct {
	mu   sync.Mutex
	list []owner.Lease
	sum  owner.Lease
}

// Add is owner.Config.Ended.
func (e *Ended) Add(l owner.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.list) == mostEnded {
		e.list = append(e.list[:0], e.list[1:]...)
	}
	e.list = append(e.list, l)
	e.sum.Add(&l)
}

// Leases is owner.Config.Past.
func (e *Ended) Leases() []owner.Lease {
	list, _ := e.Latest()
	return list
}

// Latest returns the last leases that have ended, the oldest first, and the sum
// of the counters of all.
func (e *Ended) Latest() ([]owner.Lease, owner.Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]owner.Lease(nil), e.list...), e.sum
}
