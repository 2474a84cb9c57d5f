package server

import (
	"cmp"
	"strconv"
	"sync"

	"github.com/gosoftroce/rocev2/programs"
	"github.com/gosoftroce/rocev2/transport/owner"
)

// leaseUser is what metrics tell leases apart by.
type leaseUser struct {
	user, command string
}

// maxLeaseUsers bounds the label values of a device: commands are what
// processes say.
const maxLeaseUsers = 64

// otherCommands has those that are too many.
var otherCommands = leaseUser{"other", "other"}

// pastLeases remembers the leases of a device that have ended.
type pastLeases struct {
	programs.Ended

	mu   sync.Mutex
	sums map[leaseUser]*owner.Lease
}

func newPastLeases() *pastLeases { return &pastLeases{sums: map[leaseUser]*owner.Lease{}} }

// add is owner.Config.Ended.
func (p *pastLeases) add(l owner.Lease) {
	p.Add(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sums[p.user(&l)]
	s.QPs, s.Connections, l.QPs, l.Connections = 0, 0, 0, 0
	addLease(s, &l)
}

// user returns what a lease counts for, which is in sums afterwards. The caller
// holds mu.
func (p *pastLeases) user(l *owner.Lease) leaseUser {
	u := leaseUser{strconv.FormatUint(uint64(l.UID), 10), cmp.Or(l.Command, "unknown")}
	if p.sums[u] == nil && len(p.sums) >= maxLeaseUsers {
		u = otherCommands
	}
	if p.sums[u] == nil {
		p.sums[u] = &owner.Lease{}
	}
	return u
}

func addLease(to, l *owner.Lease) {
	to.QPs += l.QPs
	to.Connections += l.Connections
	to.Slots += l.Slots
	to.Add(l)
}

// total returns the sums over the leases that have ended, and those that there
// are, whose number is Slot.
func (p *pastLeases) total(now []owner.Lease) map[leaseUser]owner.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[leaseUser]owner.Lease{}
	for i := range now {
		u := p.user(&now[i])
		s := all[u]
		addLease(&s, &now[i])
		s.Slot++
		all[u] = s
	}
	for u, past := range p.sums {
		s := all[u]
		slots := s.Slots
		addLease(&s, past)
		s.Slots = slots
		all[u] = s
	}
	return all
}
