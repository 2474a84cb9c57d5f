package relay

import (
	"maps"
	"slices"
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
)

// service is one service ID, or several that differ outside of mask only.
type service struct{ id, mask uint64 }

const whole = ^uint64(0)

func (s service) meets(o service) bool { return (s.id^o.id)&s.mask&o.mask == 0 }

// services says which lease has which services.
type services struct {
	exact  map[uint64]*lease
	masked map[service]*lease
	former [formerMost]former // a ring
	last   int
}

// former is a service that a lease had until a moment ago. The lease may be
// about to reserve it again, and knows better than the relay what becomes of a
// request until then.
type former struct {
	id    uint64
	lease *lease
	until clock.Time
}

const (
	formerMost = 64
	formerLife = time.Second
)

// part enters a service that a lease has no more.
func (s *services) part(now clock.Time, id uint64, l *lease) {
	s.last = (s.last + 1) % formerMost
	s.former[s.last] = former{id, l, now.Add(formerLife)}
}

// leave forgets what a lease had.
func (s *services) leave(l *lease) {
	for i := range s.former {
		if s.former[i].lease == l {
			s.former[i] = former{}
		}
	}
}

// asked returns the lease that a request for a service ID goes to, or nil.
func (s *services) asked(now clock.Time, id uint64) *lease {
	if l := s.of(id); l != nil {
		return l
	}
	for i := range s.former { // the latest first
		f := &s.former[(s.last+formerMost-i)%formerMost]
		if f.lease != nil && f.id == id && f.until > now {
			return f.lease
		}
	}
	return nil
}

// of returns the lease that has a service ID, or nil.
func (s *services) of(id uint64) *lease {
	if l := s.exact[id]; l != nil {
		return l
	}
	for m, l := range s.masked { // few, if any
		if m.meets(service{id, whole}) {
			return l
		}
	}
	return nil
}

// holder returns the lease that has any of the IDs, or nil.
func (s *services) holder(want service) *lease {
	if want.mask == whole {
		return s.of(want.id)
	}
	for m, l := range s.masked {
		if m.meets(want) {
			return l
		}
	}
	for id, l := range s.exact {
		if want.meets(service{id, whole}) {
			return l
		}
	}
	return nil
}

// masksMost bounds the services with a mask of a lease: each costs a look for
// each request.
const masksMost = 16

// Reserve has requests for a service come to the lease of a slot: those whose
// service ID is id in the bits of mask. The error is a *ServiceError, where it
// meets what is reserved, by the lease itself too, or where the lease has as
// many as it may have.
func (r *Relay) Reserve(slot int, id, mask uint64) error {
	l := r.at(slot)
	if l == nil {
		return errNoLease(slot)
	}
	want := service{id & mask, mask}
	if h := r.services.holder(want); h != nil {
		return &ServiceError{ID: id, Mask: mask, Holder: h.slot}
	}
	if len(l.services) >= l.limits.Services || mask != whole && l.masks >= masksMost {
		return &ServiceError{ID: id, Mask: mask, Holder: Network}
	}
	l.services[want] = struct{}{}
	if mask == whole {
		r.services.exact[want.id] = l
	} else {
		r.services.masked[want] = l
		l.masks++
	}
	return nil
}

// Release takes back what Reserve has done. It does nothing where the lease has
// not reserved just that.
func (r *Relay) Release(now clock.Time, slot int, id, mask uint64) {
	if l := r.at(slot); l != nil && r.release(l, service{id & mask, mask}) && mask == whole {
		r.services.part(now, id, l)
	}
}

func (r *Relay) release(l *lease, s service) bool {
	if _, has := l.services[s]; !has {
		return false
	}
	delete(l.services, s)
	if s.mask == whole {
		delete(r.services.exact, s.id)
	} else {
		delete(r.services.masked, s)
		l.masks--
	}
	return true
}

func (l *lease) serviceIDs() (ids []uint64) {
	for s := range maps.Keys(l.services) {
		ids = append(ids, s.id)
	}
	slices.Sort(ids)
	return ids
}
