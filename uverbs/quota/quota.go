// Package quota counts what those who use a daemon have of it.
//
// Accounts form a tree: that of the daemon, below it those of users, below
// these those of open files. What is taken from one is taken from all above it,
// and each may have a limit.
package quota

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// Kind is what is counted.
type Kind int

// The kinds.
const (
	QPs         Kind = iota // queue pairs
	CQs                     // completion queues
	CQEntries               // of all completion queues
	Channels                // completion channels, each a file of the daemon
	PDs                     // protection domains
	MRs                     // memory regions
	MWs                     // memory windows
	AHs                     // address handles
	SRQs                    // shared receive queues
	Attachments             // queue pairs in multicast groups
	RingBytes               // of all queues
	MappedBytes             // memory of programs that the daemon maps
	Mappings                // pieces of it
	IDs                     // IDs and groups of the connection manager
	Kinds
)

var names = [Kinds]string{"queue pairs", "completion queues", "entries of completion queues", "completion channels", "protection domains",
	"memory regions", "memory windows", "address handles", "shared receive queues", "queue pairs in multicast groups",
	"bytes of queues", "bytes of mapped memory", "mappings", "connection identifiers"}

func (k Kind) String() string { return names[k] }

// Limits are the most that there may be of each kind. 0: as many as there are.
type Limits [Kinds]int64

// Or returns the limits, with those of other where there is none.
func (l Limits) Or(other Limits) Limits {
	for k, n := range l {
		if n == 0 {
			l[k] = other[k]
		}
	}
	return l
}

// ErrFull is wrapped by the error of Take.
var ErrFull = errors.New("quota exceeded")

// Account is what somebody has. A nil one counts nothing, and has no limits.
type Account struct {
	whose string
	above *Account
	most  Limits

	mu   sync.Mutex // inside of those below
	have [Kinds]int64
}

// New returns an empty account below another one, or nil. Errors say whose.
func New(whose string, above *Account, l Limits) *Account {
	return &Account{whose: whose, above: above, most: l}
}

// Most returns the least limit of a kind, here and above; the greatest number
// if there is none.
func (a *Account) Most(k Kind) int64 {
	if a == nil {
		return math.MaxInt64
	}
	most := a.above.Most(k)
	if own := a.most[k]; own > 0 {
		return min(own, most)
	}
	return most
}

// Take counts n more of a kind, here and above. An error wraps ErrFull: then
// nothing is counted.
func (a *Account) Take(k Kind, n int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if most := a.most[k]; most > 0 && n > most-a.have[k] {
		return fmt.Errorf("%w: %s has %d of %d %v", ErrFull, a.whose, a.have[k], most, k)
	}
	if err := a.above.Take(k, n); err != nil {
		return err
	}
	a.have[k] += n
	return nil
}

// Give takes back what Take has counted.
func (a *Account) Give(k Kind, n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.have[k] -= n
	a.mu.Unlock()
	a.above.Give(k, n)
}

// Move has n of a kind count for another account below the same one.
func (a *Account) Move(to *Account, k Kind, n int64) {
	if a == nil || to == nil {
		return
	}
	a.mu.Lock()
	a.have[k] -= n
	a.mu.Unlock()
	to.mu.Lock()
	to.have[k] += n
	to.mu.Unlock()
}

// Clear gives back everything.
func (a *Account) Clear() {
	if a == nil {
		return
	}
	a.mu.Lock()
	had := a.have
	a.have = [Kinds]int64{}
	a.mu.Unlock()
	for k, n := range had {
		a.above.Give(Kind(k), n)
	}
}

// Have returns how much there is of a kind.
func (a *Account) Have(k Kind) int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.have[k]
}

// Empty reports whether there is nothing.
func (a *Account) Empty() bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.have == [Kinds]int64{}
}
