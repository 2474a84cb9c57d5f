package agent

import (
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// resolver resolves service IDs (SIDR): it asks peers for those of this
// program, and has the program answer those that peers ask.
type resolver struct {
	cfg       *Config
	stats     *Stats
	table     *table
	gate      *gate
	out       *outbox
	life      *lifecycle
	listeners listeners
	expected  *expected
	answers   answers
}

func (r *resolver) resolve(now clock.Time, q *SIDRRequest) (ID, error) {
	switch {
	case !validPath(&q.Path):
		return 0, errAddresses
	case len(q.Private) > mad.SIDRREQPrivateLen:
		return 0, errTooLong
	}
	c := r.table.add(&q.Path, StateSIDRSent)
	c.transaction = r.life.transaction | uint64(c.local)
	m := mad.SIDRREQ{
		TransactionID: c.transaction, RequestID: c.local, PKey: q.PKey, ServiceID: q.ServiceID, Private: q.Private,
	}
	or(&m.PKey, rocev2.DefaultPKey)
	first, longest, retries := q.FirstTimeout, q.MaxTimeout, q.Retries
	or(&first, r.cfg.FirstTimeout)
	or(&longest, mad.Timeout(defaultResponse))
	or(&retries, 15)
	r.out.keep(c, &m)
	c.setPatience(q.Patience)
	r.life.timers.pace(now, c, first, longest, retries)
	return ID(c.local), nil
}

func (r *resolver) receiveREP(now clock.Time, path *Path, b []byte) {
	var m mad.SIDRREP
	if m.Parse(b) != nil {
		r.stats.Malformed++
		return
	}
	c := r.table.conns[m.RequestID]
	if c == nil || c.state != StateSIDRSent {
		r.stats.Unexpected++
		return
	}
	if !r.table.from(c, path) {
		return
	}
	if m.Status == mad.SIDRUnsupported && r.life.timers.askLater(now, c) {
		return
	}
	m.Info, m.Private = cloned(m.Info), cloned(m.Private)
	r.life.finish(c, Event{Kind: EventSIDRReply, SIDRReply: &m})
}

// receiveREQ takes the question of a peer. One that comes again after its
// answer gets the same answer, or, after a while, is a new one.
func (r *resolver) receiveREQ(now clock.Time, path *Path, b []byte) {
	var m mad.SIDRREQ
	if m.Parse(b) != nil {
		r.stats.Malformed++
		return
	}
	if r.out.identify(path, &m) {
		return
	}
	p := r.table.peers[addressesOf(path)]
	if p != nil {
		if c := r.table.sidr[key{0, p.number, uint32(m.RequestID)}]; c != nil {
			r.stats.Duplicates++
			r.life.timers.set(c, now.Add(r.cfg.RequestLife))
			return
		}
	}
	l := r.listeners[m.ServiceID]
	if old := r.answers.to(now, question{addressesOf(path), m.RequestID, m.TransactionID, m.ServiceID}); old != nil && l != nil {
		if r.out.again() {
			r.out.slot(*path).mad = old.mad
		}
		return
	}
	if l == nil && r.expected.hold(now, path, m.ServiceID, m.RequestID, true, b) {
		return
	}
	if l == nil {
		r.stats.Refused++
		r.out.answer(path, &mad.SIDRREP{
			TransactionID: m.TransactionID, RequestID: m.RequestID, ServiceID: m.ServiceID, Status: mad.SIDRUnsupported,
		})
		return
	}
	v := r.life.makeRoom(now, l, p, r.gate.sieve.hash(path, 0, m.RequestID))
	if !v.ok {
		return
	}
	c := r.table.add(path, StateSIDRReceived)
	c.remote, c.transaction = m.RequestID, m.TransactionID
	r.table.index(c)
	r.gate.openSetup(c, l, v)
	c.setup.service = m.ServiceID
	r.life.timers.set(c, now.Add(r.cfg.RequestLife))
	req := m // what is refused is not copied
	req.Private = cloned(m.Private)
	r.life.tell(c, Event{Kind: EventSIDRRequest, SIDRRequest: &req})
}

func (r *resolver) answer(now clock.Time, id ID, rep *mad.SIDRREP) error {
	c, err := r.table.own(id)
	switch {
	case err != nil:
		return err
	case c.state != StateSIDRReceived:
		return &StateError{"answer a SIDR request", c.state}
	case len(rep.Private) > mad.SIDRREPPrivateLen || len(rep.Info) > mad.SIDRInfoLen:
		return errTooLong
	}
	m := r.out.sendSIDRREP(c, rep)
	r.answers.add(now, question{c.peer.addresses, c.remote, c.transaction, c.setup.service}, m)
	r.life.remove(c)
	return nil
}

// Resolve asks a peer which UD queue pair serves a service ID. What comes of it
// is an event: SIDRReply or Unreachable. The error wraps ErrParameter.
func (a *Agent) Resolve(now clock.Time, r *SIDRRequest) (ID, error) {
	return a.resolver.resolve(now, r)
}

// Answer answers a SIDR request, and ends its ID. It fills in the transaction
// ID, the request ID and the service ID.
func (a *Agent) Answer(now clock.Time, id ID, rep *mad.SIDRREP) error {
	return a.resolver.answer(now, id, rep)
}
