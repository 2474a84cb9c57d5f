package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/qp"
)

// QPConfig says what a queue pair is made for. SendCQ and RecvCQ are required,
// and may be the same.
type QPConfig struct {
	Type       Service // RC; the zero value is RC
	SendCQ     *CQ
	RecvCQ     *CQ
	MaxSendWR  int  // entries of the send queue; 0 means 128
	MaxRecvWR  int  // entries of the receive queue; 0 means 128
	MaxSendSGE int  // entries of a send's scatter/gather list; 0 means 4
	MaxRecvSGE int  // entries of a receive's scatter/gather list; 0 means 4
	MaxInline  int  // bytes that a request may carry in itself; 0 means 64
	SignalAll  bool // every send completes with an entry, Signaled or not
}

// fill puts the defaults where nothing is given.
func (c *QPConfig) fill() {
	for _, f := range []struct {
		field *int
		def   int
	}{
		{&c.MaxSendWR, 128}, {&c.MaxRecvWR, 128}, {&c.MaxSendSGE, 4}, {&c.MaxRecvSGE, 4}, {&c.MaxInline, 64},
	} {
		if *f.field == 0 {
			*f.field = f.def
		}
	}
}

// QP is a queue pair. Its methods may be called from any goroutine.
type QP struct {
	dev  *Device
	core *hca.QP
	psn  PSN
	made QPConfig // with the defaults filled in
}

// CreateQP makes a queue pair in state RESET.
func (pd *PD) CreateQP(c QPConfig) (*QP, error) {
	if c.SendCQ == nil || c.RecvCQ == nil {
		return nil, errors.New("verbs: create a queue pair: SendCQ and RecvCQ must be set (they may be the same)")
	}
	if c.SendCQ.core.Device() != pd.core.Device() || c.RecvCQ.core.Device() != pd.core.Device() {
		return nil, errors.New("verbs: create a queue pair: its completion queues belong to another device")
	}
	c.fill()
	core, err := pd.core.Owner().CreateQP(qp.Config{
		Service:    c.Type,
		PD:         pd.core.Core(),
		SendCQ:     c.SendCQ.core,
		RecvCQ:     c.RecvCQ.core,
		MaxSendWR:  c.MaxSendWR,
		MaxRecvWR:  c.MaxRecvWR,
		MaxSendSGE: c.MaxSendSGE,
		MaxRecvSGE: c.MaxRecvSGE,
		MaxInline:  c.MaxInline,
		SignalAll:  c.SignalAll,
	})
	if err != nil {
		return nil, fmt.Errorf("verbs: create a queue pair: %w", err)
	}
	q := &QP{dev: pd.dev, core: core, psn: hca.RandomPSN(), made: c}
	core.SetUserData(q)
	return q, nil
}

// QPN returns the queue pair number.
func (q *QP) QPN() QPN { return q.core.QPN() }

// Device returns the device of the queue pair.
func (q *QP) Device() *Device { return q.dev }

// State returns the current state.
func (q *QP) State() State { return q.core.State() }

// Query returns the current attributes.
func (q *QP) Query() Attr { return q.core.Attr() }

// Config returns what the queue pair was made for, with the defaults filled in.
func (q *QP) Config() QPConfig { return q.made }

// Stats returns the queue pair's counters.
func (q *QP) Stats() QPStats { return q.core.Stats() }

// Modify changes the state and attributes, by the rules of the state table
// (IBTA 11.2.5.2). Connect does the usual sequence.
func (q *QP) Modify(a *Attr, mask AttrMask) error {
	if err := q.core.Modify(a, mask); err != nil {
		return fmt.Errorf("verbs: modify QP %v: %w", q.QPN(), err)
	}
	return nil
}

// PostError says which of the work requests of a call was refused; those
// before it were accepted, those after it were not looked at.
type PostError struct {
	Index int // of the refused request
	ID    uint64
	Err   error
}

func (e *PostError) Error() string {
	return fmt.Sprintf("verbs: work request %d (id %d) refused: %v", e.Index, e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *PostError) Unwrap() error { return e.Err }

// PostSend posts requests to the send queue in order and starts sending them.
func (q *QP) PostSend(wrs ...SendWR) error {
	if n, err := q.core.PostSend(wrs); err != nil {
		return &PostError{Index: n, ID: wrs[min(n, len(wrs)-1)].ID, Err: err}
	}
	return nil
}

// PostRecv posts buffers to the receive queue in order.
func (q *QP) PostRecv(wrs ...RecvWR) error {
	if n, err := q.core.PostRecv(wrs); err != nil {
		return &PostError{Index: n, ID: wrs[min(n, len(wrs)-1)].ID, Err: err}
	}
	return nil
}

// Close destroys the queue pair. Work that is outstanding completes no more.
func (q *QP) Close() error { return q.core.Close() }

// Endpoint is what a peer must know to connect. It is a plain value to be sent
// to the peer.
type Endpoint struct {
	Addr netip.Addr `json:"addr"`
	QPN  QPN        `json:"qpn"`
	PSN  PSN        `json:"psn"` // the first that this side sends

	// OwnKind says that this side is this software: its buffers take more in
	// flight than is safe to send to others. Endpoint sets it. In an Endpoint that
	// a program makes for a peer that it learned of in another way, it stays
	// false unless that peer is known to be one: towards others (Linux, adapters)
	// it would lead to loss.
	OwnKind bool `json:"own_kind,omitempty"`
}

func (e Endpoint) String() string {
	return fmt.Sprintf("%v QPN %v PSN 0x%06x", e.Addr, e.QPN, uint32(e.PSN))
}

// Endpoint returns this side's. The starting PSN was chosen at random when the
// queue pair was made.
func (q *QP) Endpoint() Endpoint {
	return Endpoint{Addr: q.dev.Addr(), QPN: q.QPN(), PSN: q.psn, OwnKind: true}
}
