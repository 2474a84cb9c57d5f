package agent

import (
	"time"

	"github.com/gosoftroce/rocev2/internal/list"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// listeners are those who take requests, by service.
type listeners map[mad.ServiceID]*listener

type listener struct {
	backlog int
	waiting int // requests that the program has not answered
	ready   int // connections of candidates that the program has not taken
	greeter Greeter
	crowd   crowd
	// requests are those that wait to be taken and have come once, claims
	// those that have come again, and taken those that the program has in
	// hand, oldest first.
	requests, claims, taken list.List[conn]
}

// Listen takes requests for a service: REQs or SIDR_REQs. At most backlog of
// them wait for the program; 0 is Config.Backlog. The error is ErrListening.
func (a *Agent) Listen(service mad.ServiceID, backlog int) error {
	if a.listeners[service] != nil {
		return ErrListening
	}
	if backlog <= 0 {
		backlog = a.cfg.Backlog
	}
	a.expected.arrived(a.out.now, service)
	a.listeners[service] = &listener{backlog: backlog}
	return nil
}

// Greet has the agent answer the requests of a listener itself, at once. The
// event Request comes when the peer has answered that, and the connection is
// established then. Before, nothing is made for the peer, which may not exist:
// only a candidate is kept. nil ends it, as Unlisten does. The service is
// listened for.
func (a *Agent) Greet(service mad.ServiceID, g Greeter) { a.listeners[service].greeter = g }

// Unlisten takes no more requests for a service. Those that wait for the
// program are still its own to answer. Peers that a Greeter has accepted, and
// that have not answered that, are rejected when they do.
func (a *Agent) Unlisten(service mad.ServiceID) {
	if l := a.listeners[service]; l != nil {
		l.greeter = nil
	}
	delete(a.listeners, service)
}

// Expect says that a service whose listener has gone has another one soon. A
// request that comes within d waits for it, and is refused only then: a peer
// without patience takes a refusal for the last word.
func (a *Agent) Expect(now clock.Time, service mad.ServiceID, d time.Duration) {
	a.expected.add(now, service, d)
}

// Claimant returns the request that the program should take first where many
// wait: the oldest of those that have come again. An honest peer sends its
// request again, and the many of a flood come once. It reports false if there
// is none.
func (a *Agent) Claimant(service mad.ServiceID) (ID, bool) {
	l := a.listeners[service]
	if l == nil || l.claims.Len() == 0 {
		return 0, false
	}
	return ID(l.claims.Front().local), true
}

// Take says that the program has a request in hand. It does not have to, but a
// request that is not taken is the first to make room for others.
func (a *Agent) Take(id ID) {
	if c, err := a.table.own(id); err == nil {
		a.gate.take(c)
	}
}
