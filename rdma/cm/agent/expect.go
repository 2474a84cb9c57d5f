package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

const (
	maxExpected = 64 // services
	maxHeld     = 16 // requests, of all services
)

// expected are services that have lost their listener and get another one soon,
// with the requests that wait for it.
type expected struct {
	until map[mad.ServiceID]clock.Time
	held  []heldRequest
}

type heldRequest struct {
	service mad.ServiceID
	from    mad.CommID // of the peer, or its request ID
	sidr    bool
	path    Path
	mad     [mad.Len]byte
}

func (e *expected) add(now clock.Time, service mad.ServiceID, d time.Duration) {
	if e.until == nil {
		e.until = map[mad.ServiceID]clock.Time{}
	}
	for s, until := range e.until {
		if until <= now && !e.holds(s) {
			delete(e.until, s)
		}
	}
	if _, known := e.until[service]; known || len(e.until) < maxExpected {
		e.until[service] = now.Add(d)
	}
}

func (e *expected) holds(service mad.ServiceID) bool {
	for i := range e.held {
		if e.held[i].service == service {
			return true
		}
	}
	return false
}

// arrived says that a service has a listener.
func (e *expected) arrived(now clock.Time, service mad.ServiceID) {
	if _, ok := e.until[service]; ok {
		e.until[service] = now
	}
}

// hold keeps a request for a service that is expected, and reports whether it
// does. One that comes again is kept once.
func (e *expected) hold(now clock.Time, path *Path, service mad.ServiceID, from mad.CommID, sidr bool, b []byte) bool {
	if e.until[service] <= now {
		return false
	}
	for i := range e.held {
		h := &e.held[i]
		if h.from == from && h.service == service && h.sidr == sidr && addressesOf(&h.path) == addressesOf(path) {
			return true
		}
	}
	if len(e.held) == maxHeld {
		return false
	}
	h := heldRequest{service: service, from: from, sidr: sidr, path: *path}
	copy(h.mad[:], b)
	e.held = append(e.held, h)
	return true
}

// due takes the next request that waits no longer.
func (e *expected) due(now clock.Time) (h heldRequest, ok bool) {
	for i := range e.held {
		if h = e.held[i]; e.until[h.service] > now {
			continue
		}
		if e.held = append(e.held[:i], e.held[i+1:]...); len(e.held) == 0 {
			e.held = nil
		}
		return h, true
	}
	return h, false
}

// deadline returns when the next request is due, or at if that is earlier.
func (e *expected) deadline(at clock.Time) clock.Time {
	for i := range e.held {
		at = min(at, e.until[e.held[i].service])
	}
	return at
}

// answerHeld handles the requests that have waited, in order.
func (a *Agent) answerHeld(now clock.Time) {
	for h, ok := a.expected.due(now); ok; h, ok = a.expected.due(now) {
		a.out.now = now
		if h.sidr {
			a.resolver.receiveREQ(now, &h.path, h.mad[:])
		} else {
			a.receiveREQ(now, &h.path, h.mad[:])
		}
	}
}
