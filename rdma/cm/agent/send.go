package agent

import (
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/rocev2/mad"
)

// outgoing is a MAD that waits for Send.
type outgoing struct {
	path     Path
	stranger bool
	mad      [mad.Len]byte
}

// outbox has the MADs that wait for Send.
type outbox struct {
	queue     queue[outgoing]
	strangers int // in queue, answers to those who have no connection
	room      int // for those
	budget    budget
	now       clock.Time // of what has come
	guid      mad.GUID
	identity  mad.ECE
	stats     *Stats
}

// next writes the next MAD to buf.
func (o *outbox) next(buf []byte) (Path, bool) {
	m, ok := o.queue.pop()
	if !ok {
		return Path{}, false
	}
	if m.stranger {
		o.strangers--
	}
	copy(buf[:mad.Len], m.mad[:])
	o.stats.Sent++
	return m.path, true
}

// slot makes room for a MAD at the end of the queue.
func (o *outbox) slot(path Path) *outgoing {
	o.queue.push(outgoing{path: path})
	return &o.queue.items[len(o.queue.items)-1]
}

// send queues a message of a connection.
func (o *outbox) send(c *conn, m mad.Message) {
	m.AppendTo(o.slot(c.path()).mad[:0])
}

// keep queues a message, and keeps it to be sent again.
func (o *outbox) keep(c *conn, m mad.Message) {
	c.message = new([mad.Len]byte)
	m.AppendTo(c.message[:0])
	o.slot(c.path()).mad = *c.message
}

// answer queues a message to a peer that has no connection, if there were not
// too many.
func (o *outbox) answer(path *Path, m mad.Message) {
	if !o.budget.forOther(o.now) {
		o.stats.Unanswered++
		return
	}
	o.answerAnyway(path, m)
}

// answerAnyway queues a message to a peer that has no connection, if there is
// room.
func (o *outbox) answerAnyway(path *Path, m mad.Message) {
	if o.strangers >= o.room {
		o.stats.Unanswered++
		return
	}
	o.strangers++
	s := o.slot(*path)
	s.stranger = true
	m.AppendTo(s.mad[:0])
}

// resend queues the message that the state of c is about once more.
func (o *outbox) resend(c *conn) {
	switch {
	case c.message != nil:
		o.slot(c.path()).mad = *c.message
	case c.state == StateDREQSent:
		o.send(c, &mad.DREQ{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote, RemoteQPN: c.remoteQPN})
	case c.state == StateEstablished:
		o.send(c, &mad.RTU{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote})
	case c.state == StateTimewait:
		o.send(c, &mad.DREP{TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote})
	}
}

// again reports whether a message that the peer has sent once more may be
// answered. It is not where many messages wait for Send: the peer repeats it
// for as long as it has no answer, and one that does not wait for answers gets
// no more memory by that.
func (o *outbox) again() bool {
	o.stats.Duplicates++
	if o.queue.len() >= o.room || !o.budget.forOther(o.now) {
		o.stats.Unanswered++
		return false
	}
	return true
}

// sendREJ rejects. The local ID is 0 as long as the peer does not know it.
func (o *outbox) sendREJ(c *conn, stage mad.Stage, reason mad.Reason, ari, private []byte) {
	m := mad.REJ{
		TransactionID: c.transaction, LocalID: c.local, RemoteID: c.remote,
		Message: stage, Reason: reason, ARI: ari, Private: private,
	}
	if c.state == StateREQReceived && !c.acked {
		m.LocalID = 0
	}
	o.send(c, &m)
}

// refuse rejects the message of a stranger.
func (o *outbox) refuse(path *Path, transaction uint64, local, remote mad.CommID, stage mad.Stage, reason mad.Reason, ari []byte) {
	o.stats.Refused++
	o.answer(path, &mad.REJ{
		TransactionID: transaction, LocalID: local, RemoteID: remote, Message: stage, Reason: reason, ARI: ari,
	})
}

// refuseService rejects a request for a service that has no listener, as
// refusal says, if it says anything.
func (o *outbox) refuseService(path *Path, m *mad.REQ, refusal func(mad.ServiceID) *mad.REJ) {
	var rej *mad.REJ
	if refusal != nil {
		rej = refusal(m.ServiceID)
	}
	if rej == nil {
		rej = &mad.REJ{Reason: mad.ReasonInvalidServiceID}
	}
	rej.TransactionID, rej.RemoteID, rej.Message = m.TransactionID, m.LocalID, mad.StageREQ
	o.stats.Refused++
	o.answer(path, rej)
}

// sendSIDRREP answers the SIDR request of c, and returns the message.
func (o *outbox) sendSIDRREP(c *conn, rep *mad.SIDRREP) *mad.SIDRREP {
	m := *rep
	m.TransactionID, m.RequestID, m.ServiceID = c.transaction, c.remote, c.setup.service
	o.send(c, &m)
	return &m
}

// guidBytes is the additional information of a REJ for a timeout: the GUID of
// the side that gives up.
func (o *outbox) guidBytes() []byte {
	var b [8]byte
	for i := range b {
		b[i] = byte(o.guid >> (56 - 8*i))
	}
	return b[:]
}

func cloned(b []byte) []byte { return append([]byte(nil), b...) }
