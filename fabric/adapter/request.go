package adapter

import (
	"errors"
	"fmt"

	"github.com/gosoftroce/rocev2/fabric/event"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
)

// Request is a message, or an atomic, to be posted.
type Request struct {
	Op    ib.Opcode
	Bytes uint32 // of the message, up to ib.MaxMessage
	Imm   uint32 // of those that have it
	Tag   uint64 // comes back in the Completion

	// Done, if not nil, is called once, when the request has completed. It
	// may post, connect and close. It must not run the network.
	Done func(Completion)

	// Where the bytes are, with Config.Real. Else they are left out.
	Local  ib.SGE // then Bytes is its length
	Remote ib.RemoteAddr
}

// Completion is a request that has completed, in virtual time: a SEND or WRITE
// when its last acknowledgement has come, a READ when its last byte has.
type Completion struct {
	QP     *QP
	Status ib.Status
	Bytes  uint32 // of the message
	Tag    uint64
	Start  event.Time // when it was posted
	End    event.Time // when it has completed
}

// Message is one that has arrived in a receive.
type Message struct {
	QP     *QP
	Status ib.Status
	Bytes  uint32
	Imm    uint32
	At     event.Time
}

// request is one that is posted.
type request struct {
	done  func(Completion)
	tag   uint64
	start event.Time
	bytes uint32
	next  uint32 // of those that are free
}

// requests are those of all queue pairs of a part. The ID of a work request is
// its number there.
type requests struct {
	all  []request
	free uint32 // number + 1
}

func (r *requests) add(q request) uint64 {
	i := r.free
	if i == 0 {
		r.all = append(r.all, q)
		return uint64(len(r.all) - 1)
	}
	r.free = r.all[i-1].next
	r.all[i-1] = q
	return uint64(i - 1)
}

func (r *requests) take(id uint64) request {
	q := r.all[id]
	r.all[id] = request{next: r.free}
	r.free = uint32(id) + 1
	return q
}

// completed is a work request that has completed: in an engine, that must not
// be called meanwhile.
type completed struct {
	q    *QP
	wc   ib.WC
	recv bool
}

// Complete implements qp.CompletionSink, for the engine alone.
func (q *QP) Complete(c *ib.WC) bool {
	q.h.done = append(q.h.done, completed{q: q, wc: *c})
	return true
}

// receiver takes the completions of a receive queue.
type receiver QP

func (r *receiver) Complete(c *ib.WC) bool {
	if q := (*QP)(r); q.Received != nil {
		q.h.done = append(q.h.done, completed{q: q, wc: *c, recv: true})
	}
	return true
}

// endless always has a receive, of memory without bytes.
type endless part

func (e *endless) Next(r *qp.Recv) bool {
	r.ID, r.SGList, r.PD = 0, append(r.SGList[:0], e.mr.SGE(0, ib.MaxMessage)), e.pd
	return true
}

// deliver tells programs what has completed at a host. What they do meanwhile
// may complete more.
func (h *Host) deliver() {
	if h.delivering || len(h.done) == 0 {
		return
	}
	h.delivering = true
	for i := 0; i < len(h.done); i++ {
		c := h.done[i]
		if c.recv {
			c.q.Received(Message{QP: c.q, Status: c.wc.Status, Bytes: c.wc.ByteLen, Imm: c.wc.Imm, At: h.Now()})
			continue
		}
		r := h.part.requests.take(c.wc.ID)
		if r.done != nil {
			r.done(Completion{QP: c.q, Status: c.wc.Status, Bytes: r.bytes, Tag: r.tag, Start: r.start, End: h.Now()})
		}
	}
	clear(h.done)
	h.done, h.delivering = h.done[:0], false
}

// Post posts a request. Done is called later, never from inside of Post. The
// error wraps one of those of package ib: ib.ErrQueueFull when the send queue
// is.
func (q *QP) Post(r Request) error {
	if q.closed {
		return ErrClosed
	}
	a := q.h.part
	wr := &a.wr[0]
	*wr = ib.SendWR{Opcode: r.Op, Imm: r.Imm, Remote: r.Remote, SGList: a.sge[:]}
	switch {
	case !q.h.a.cfg.Real && (r.Local != ib.SGE{} || r.Remote != ib.RemoteAddr{}):
		return errors.New("adapter: a request names memory, but packets carry no bytes: set Config.Real")
	case !q.h.a.cfg.Real:
		r.Local = a.mr.SGE(0, r.Bytes)
		mr := q.peer.h.part.mr
		wr.Remote = ib.RemoteAddr{Addr: mr.Addr(), RKey: mr.RKey()}
		if r.Op.Flags()&ib.OpRemote == 0 {
			wr.Remote = ib.RemoteAddr{}
		}
	default:
		r.Bytes = r.Local.Length
	}
	a.sge[0] = r.Local
	wr.ID = a.requests.add(request{done: r.Done, tag: r.Tag, start: q.h.Now(), bytes: r.Bytes})
	if _, err := q.h.e.PostSend(q.q, a.wr[:]); err != nil {
		a.requests.take(wr.ID)
		return fmt.Errorf("adapter: host %d, queue pair %v: %w", q.h.number, q.QPN(), err)
	}
	q.h.changed()
	return nil
}

// PostRecv posts a receive. It is for Config.Real: else there is always one,
// and it is an error. Other errors wrap one of package ib, or are ErrClosed.
func (q *QP) PostRecv(to ib.SGE) error {
	if !q.h.a.cfg.Real {
		return errors.New("adapter: receives are always there, because packets carry no bytes: see Config.Real")
	}
	if q.closed {
		return ErrClosed
	}
	_, err := q.h.e.PostRecv(q.q, []ib.RecvWR{{SGList: []ib.SGE{to}}})
	q.h.changed()
	return err
}

// changed does what follows when a program has changed something.
func (h *Host) changed() {
	h.a.net.Kick(int(h.number), 0)
	if len(h.done) > 0 && !h.delivering {
		h.soon()
	}
}

// Register registers memory of the host, with all rights. It is for
// Config.Real, and else an error.
func (h *Host) Register(mem []byte) (*memreg.Region, error) {
	if !h.a.cfg.Real {
		return nil, errors.New("adapter: packets carry no bytes, so there is no memory to register: set Config.Real")
	}
	return h.table.Register(h.pd, memreg.Local(mem), memreg.Options{Access: allAccess})
}
