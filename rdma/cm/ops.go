package cm

import (
	"errors"
	"time"

	"github.com/gosoftroce/rocev2/rdma/cm/agent"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// What programs ask of the agent. Methods of the manager that say "locked" are
// called with its lock held, the others without.

// listen has the events of a service go to s.
func (m *manager) listen(service mad.ServiceID, backlog int, s sink) error {
	m.lock()
	defer m.unlock()
	if m.closed {
		return m.errOver()
	}
	if err := m.agent.Listen(service, backlog); err != nil {
		return err
	}
	m.listeners[service] = s
	return nil
}

// unlisten ends that, locked.
func (m *manager) unlisten(service mad.ServiceID) {
	if !m.closed {
		m.agent.Unlisten(service)
		delete(m.listeners, service)
	}
}

// expect is unlisten of a service that is listened to again soon, locked.
func (m *manager) expect(service mad.ServiceID, d time.Duration) {
	m.unlisten(service)
	if !m.closed && d > 0 {
		m.agent.Expect(m.now(), service, d)
	}
}

// release ends an ID, locked. The agent says to the peer what it must know.
func (m *manager) release(id agent.ID) {
	if !m.closed {
		m.agent.Release(m.now(), id)
		delete(m.ids, id)
	}
}

// refuse rejects a request that is never seen by the program, locked.
func (m *manager) refuse(e *agent.Event, reason Reason, info []byte) {
	m.refused++
	if e.Kind == agent.EventSIDRRequest {
		_ = m.agent.Answer(m.now(), e.ID, &mad.SIDRREP{Status: mad.SIDRRejected})
	} else {
		_ = m.agent.Reject(m.now(), e.ID, reason, info, nil)
	}
	m.agent.Release(m.now(), e.ID)
}

// reject rejects a request, or the peer's reply, and ends the ID.
func (m *manager) reject(id agent.ID, reason Reason, info, data []byte) error {
	m.lock()
	defer m.unlock()
	if m.closed {
		return m.errOver()
	}
	delete(m.ids, id)
	return gone(m.agent.Reject(m.now(), id, reason, info, data))
}

// ignore ends a request without a word.
func (m *manager) ignore(id agent.ID) error {
	m.lock()
	defer m.unlock()
	if m.closed {
		return m.errOver()
	}
	delete(m.ids, id)
	return gone(m.agent.Ignore(m.now(), id))
}

// answer answers a SIDR request.
func (m *manager) answer(id agent.ID, rep *mad.SIDRREP) error {
	m.lock()
	defer m.unlock()
	if m.closed {
		return m.errOver()
	}
	delete(m.ids, id)
	return gone(m.agent.Answer(m.now(), id, rep))
}

// take says that the program has a request in hand.
func (m *manager) take(id agent.ID) {
	m.lock()
	defer m.unlock()
	if !m.closed {
		m.agent.Take(id)
	}
}

// accept accepts a request, whose events s gets from now on.
func (m *manager) accept(s sink, id agent.ID, rep *mad.REP) error {
	m.lock()
	defer m.unlock()
	if m.closed {
		return m.errOver()
	}
	if err := m.agent.Accept(m.now(), id, rep); err != nil {
		return gone(err)
	}
	m.ids[id] = s
	return nil
}

// connect asks for a connection, whose events s gets.
func (m *manager) connect(s sink, r *agent.ConnectRequest) (agent.ID, error) {
	m.lock()
	defer m.unlock()
	if m.closed {
		return 0, m.errOver()
	}
	id, err := m.agent.Connect(m.now(), r)
	if err == nil {
		m.ids[id] = s
	}
	return id, err
}

// establish says to the peer that this side is ready.
func (m *manager) establish(id agent.ID) error {
	m.lock()
	defer m.unlock()
	if m.closed {
		return m.errOver()
	}
	return gone(m.agent.Ready(m.now(), id, nil))
}

// gone turns the agent's word for an ID that it does not know any more into
// this package's.
func gone(err error) error {
	if errors.Is(err, agent.ErrUnknownID) {
		return ErrGone
	}
	return err
}
