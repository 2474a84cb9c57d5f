package agent

import (
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// Resolve asks a peer which UD queue pair serves a service ID. What comes of it
// is an event: SIDRReply or Unreachable. The error wraps ErrParameter.
func (a *Agent) Resolve(now clock.Time, r *SIDRRequest) (ID, error) {
	switch {
	case !validPath(&r.Path):
		return 0, errAddresses
	case len(r.Private) > mad.SIDRREQPrivateLen:
		return 0, errTooLong
	}
	c := a.add(&r.Path, StateSIDRSent)
	c.transaction = a.transaction | uint64(c.local)
	m := mad.SIDRREQ{
		TransactionID: c.transaction, RequestID: c.local, PKey: r.PKey, ServiceID: r.ServiceID, Private: r.Private,
	}
	or(&m.PKey, rocev2.DefaultPKey)
	first, longest, retries := r.FirstTimeout, r.MaxTimeout, r.Retries
	or(&first, a.cfg.FirstTimeout)
	or(&longest, mad.Timeout(defaultResponse))
	or(&retries, 15)
	a.keep(c, &m)
	c.setPatience(r.Patience)
	a.timers.pace(now, c, first, longest, retries)
	return ID(c.local), nil
}

func (a *Agent) receiveSIDRREP(now clock.Time, path *Path, b []byte) {
	var m mad.SIDRREP
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	c := a.conns[m.RequestID]
	if c == nil || c.state != StateSIDRSent {
		a.stats.Unexpected++
		return
	}
	if !a.from(c, path) {
		return
	}
	if m.Status == mad.SIDRUnsupported && a.timers.askLater(now, c) {
		return
	}
	m.Info, m.Private = cloned(m.Info), cloned(m.Private)
	a.finish(c, Event{Kind: EventSIDRReply, SIDRReply: &m})
}

// receiveSIDRREQ takes the question of a peer. One that comes again after its
// answer gets the same answer, or, after a while, is a new one.
func (a *Agent) receiveSIDRREQ(now clock.Time, path *Path, b []byte) {
	var m mad.SIDRREQ
	if m.Parse(b) != nil {
		a.stats.Malformed++
		return
	}
	if a.identify(path, &m) {
		return
	}
	p := a.peers[addressesOf(path)]
	if p != nil {
		if c := a.sidr[key{0, p.number, uint32(m.RequestID)}]; c != nil {
			a.stats.Duplicates++
			a.timers.set(c, now.Add(a.cfg.RequestLife))
			return
		}
	}
	l := a.listeners[m.ServiceID]
	if old := a.answers.to(now, question{addressesOf(path), m.RequestID, m.TransactionID, m.ServiceID}); old != nil && l != nil {
		if a.again() {
			a.slot(*path).mad = old.mad
		}
		return
	}
	if l == nil && a.hold(now, path, m.ServiceID, m.RequestID, true, b) {
		return
	}
	if l == nil {
		a.stats.Refused++
		a.answer(path, &mad.SIDRREP{
			TransactionID: m.TransactionID, RequestID: m.RequestID, ServiceID: m.ServiceID, Status: mad.SIDRUnsupported,
		})
		return
	}
	v := a.makeRoom(now, l, p, a.sieve.hash(path, 0, m.RequestID))
	if !v.ok {
		return
	}
	c := a.add(path, StateSIDRReceived)
	c.remote, c.transaction = m.RequestID, m.TransactionID
	a.index(c)
	a.openSetup(c, l, v)
	c.setup.service = m.ServiceID
	a.timers.set(c, now.Add(a.cfg.RequestLife))
	req := m // what is refused is not copied
	req.Private = cloned(m.Private)
	a.tell(c, Event{Kind: EventSIDRRequest, SIDRRequest: &req})
}

// Answer answers a SIDR request, and ends its ID. It fills in the transaction
// ID, the request ID and the service ID.
func (a *Agent) Answer(now clock.Time, id ID, rep *mad.SIDRREP) error {
	c, err := a.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateSIDRReceived:
		return &StateError{"answer a SIDR request", c.state}
	case len(rep.Private) > mad.SIDRREPPrivateLen || len(rep.Info) > mad.SIDRInfoLen:
		return errTooLong
	}
	m := a.sendSIDRREP(c, rep)
	a.answers.add(now, question{c.peer.addresses, c.remote, c.transaction, c.setup.service}, m)
	a.remove(c)
	return nil
}
