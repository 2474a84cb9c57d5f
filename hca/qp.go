package hca

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/hca/engine"
	"github.com/gosoftroce/rocev2/hca/task"
	"github.com/gosoftroce/rocev2/hca/wake"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
)

// QP is a queue pair on a device. Its methods may be called from any
// goroutine.
type QP struct {
	shard *shard
	owner *Context
	core  *engine.QP // guarded by the shard's lock
	uses  attached   // where it takes its receives from; or nil

	userData  atomic.Value // the layer above's; set once, but Device.QP may be asked before
	groups    []netip.Addr // that it is attached to; guarded by Device.groups
	closeOnce task.Once
	slotted   atomic.Bool // it counts among Device.slotPorts
	typ       ib.QPType
	closed    bool       // guarded by the shard's lock
	checked   *checkedQP // nil but in strict mode
}

// CreateQP makes a queue pair in state RESET. The fields Memory, Window,
// ReadChunk, LongReads, MinProbe, PortMTU and Invalidate of config are the
// device's to fill, and QPN too unless HoldQPN has returned it. A device has
// at most one GSI queue pair (ib.ErrGSIInUse). Sinks that are completion
// queues are open and of the same device. If RecvSource is an SRQ of the
// context, the queue pair has no receive queue of its own, so that MaxRecvWR
// and MaxRecvSGE are not looked at. The Domain of an XRC target is an XRCD of
// the context.
func (c *Context) CreateQP(config qp.Config) (*QP, error) {
	var uses attached
	if srq, ok := config.RecvSource.(*SRQ); ok {
		uses = srq
	} else if xrcd, ok := config.Domain.(*XRCD); ok {
		uses = xrcd
	}
	if uses == nil {
		return c.createQP(config, nil)
	}
	if err := uses.attach(c); err != nil {
		return nil, fmt.Errorf("%s: %w", uses.kind(), err)
	}
	if srq, ok := uses.(*SRQ); ok {
		config.MaxRecvWR, config.MaxRecvSGE = 0, srq.Attr().MaxSGE
	}
	q, err := c.createQP(config, uses)
	if q == nil {
		uses.detach()
	}
	return q, err
}

// attached is what queue pairs are attached to: while they are, it cannot be
// closed.
type attached interface {
	attach(o *Context) error
	detach()
	kind() string
}

// createQP makes a queue pair that is attached to uses, if that is not nil.
func (c *Context) createQP(config qp.Config, uses attached) (*QP, error) {
	if err := c.checkQP(&config); err != nil {
		return nil, err
	}
	if err := c.reserve(kindQP); err != nil {
		return nil, err
	}
	q, err := c.addQP(config)
	if err == nil {
		q.uses = uses
		if err = c.enter(q, kindQP); err != nil {
			q.uses = nil
			q.destroy()
		}
	}
	if err != nil {
		c.unreserve(kindQP)
		return nil, err
	}
	return q, nil
}

// checkQP checks what a queue pair is to be made with.
func (c *Context) checkQP(config *qp.Config) error {
	for _, r := range []struct {
		what       string
		got, least int
		most       int
	}{
		{"MaxSendWR", config.MaxSendWR, 0, c.dev.limits.WR},
		{"MaxRecvWR", config.MaxRecvWR, 0, c.dev.limits.WR},
		{"MaxSendSGE", config.MaxSendSGE, 0, c.dev.limits.SGE},
		{"MaxRecvSGE", config.MaxRecvSGE, 0, c.dev.limits.SGE},
		{"MaxInline", config.MaxInline, 0, c.dev.limits.Inline},
	} {
		if err := checkRange(r.what, r.got, r.least, r.most); err != nil {
			return err
		}
	}
	for _, sink := range []struct {
		name string
		sink qp.CompletionSink
	}{{"SendCQ", config.SendCQ}, {"RecvCQ", config.RecvCQ}} {
		if cq, ok := sink.sink.(*CQ); ok {
			if err := cq.usable(c.dev); err != nil {
				return fmt.Errorf("%s: %w", sink.name, err)
			}
		}
	}
	return nil
}

// addQP makes a queue pair and adds it to a shard.
func (c *Context) addQP(config qp.Config) (*QP, error) {
	s := c.dev.shardFor(&config)
	config.PortMTU = c.dev.PathMTU(netip.Addr{})
	q := &QP{shard: s, owner: c}
	q.checked = c.dev.checks.check(q, &config)
	for {
		core, err := s.eng.NewQP(config, q) // without the lock: it makes the rings
		if err != nil {
			return nil, err
		}
		q.core, q.typ = core, core.Core().Type()
		s.domains.add(core.Core(), 1) // before packets come for it
		s.lock()
		closed := s.closed
		added := !closed && s.eng.AddQP(core)
		s.unlock()
		if !added {
			s.domains.add(core.Core(), -1)
		}
		switch {
		case closed:
			return nil, ErrClosed
		case added:
			if config.Type != ib.GSI {
				c.dev.use.create(config.Type)
			}
			if q.checked != nil {
				q.checked.enter()
			}
			return q, nil
		case config.Type == ib.GSI:
			return nil, ib.ErrGSIInUse
		case config.QPN != 0: // another queue pair has it
			return nil, ErrNoResources
		}
	}
}

// context implements user.
func (q *QP) context() *Context { return q.owner }

// QPN returns the queue pair number.
func (q *QP) QPN() rocev2.QPN { return q.core.QPN() }

// SetUserData attaches a value of the layer above, once, before any other use.
func (q *QP) SetUserData(v any) { q.userData.Store(v) }

// UserData returns what SetUserData attached.
func (q *QP) UserData() any { return q.userData.Load() }

// State returns the current state.
func (q *QP) State() ib.State {
	q.shard.lock()
	defer q.shard.unlock()
	return q.core.Core().State()
}

// Attr returns the current attributes.
func (q *QP) Attr() ib.Attr {
	q.shard.lock()
	defer q.shard.unlock()
	return q.core.Core().Attr()
}

// Stats returns the queue pair's counters.
func (q *QP) Stats() qp.Stats {
	q.shard.lock()
	defer q.shard.unlock()
	return q.core.Core().Stats()
}

// Modify changes state and attributes (IBTA 11.2.5.2). AV.SrcPort may be
// AutoSourcePort; Attr then returns the port that was chosen.
func (q *QP) Modify(a *ib.Attr, mask ib.AttrMask) error {
	if q.typ.Service() != rocev2.ServiceUD { // which takes nothing of a peer
		var err error
		if a, err = q.forDevice(a, mask); err != nil {
			return err
		}
	}
	s := q.shard
	s.lock()
	sent, err := q.modify(a, mask)
	s.unlock()
	s.out.await(sent)
	return err
}

// modify is Modify with the shard locked. It returns what to await.
func (q *QP) modify(a *ib.Attr, mask ib.AttrMask) (sent <-chan struct{}, err error) {
	s := q.shard
	if q.closed {
		return nil, ErrClosed
	}
	if err := s.eng.Modify(q.core, a, mask); err != nil {
		return nil, err
	}
	if mask&ib.AttrAV != 0 {
		q.owner.dev.use.connect(q.typ, q.QPN(), a)
	}
	q.transmit()
	if mask&ib.AttrState != 0 && (a.State == ib.StateErr || a.State == ib.StateReset) {
		sent = s.out.sendFinal()
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateReset {
		q.leaveSlots()
		q.checked.reset()
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateRTS {
		replay(&s.locked, q.QPN())
	}
	return sent, nil
}

// transmit sends what q has come to have to send. It is called as
// sender.transmit is.
func (q *QP) transmit() {
	s := q.shard
	acks := engine.AcksLeave
	if s.side.has(wake.StandsBy) && !s.side.has(wake.Prompt) {
		acks = engine.AcksAtPost
	}
	s.out.transmitFor(0, q.core, acks)
}

// forDevice checks attributes, opens the source port that they ask for, and
// returns them as the state machine takes them.
func (q *QP) forDevice(a *ib.Attr, mask ib.AttrMask) (*ib.Attr, error) {
	if err := q.checkDevice(a, mask); err != nil {
		return nil, err
	}
	return q.withSourcePort(q.withZone(a, mask), mask)
}

// checkDevice checks what the state machine cannot know: what this device and
// its link can do.
func (q *QP) checkDevice(a *ib.Attr, mask ib.AttrMask) error {
	d := q.owner.dev
	if mask&ib.AttrAV != 0 {
		if err := d.own.checkPeer(a.AV.DGID); err != nil {
			return q.badValue(a, mask, ib.AttrAV, err)
		}
	}
	if mask&ib.AttrPathMTU != 0 && a.PathMTU.Valid() {
		if err := d.own.checkPathMTU(a.PathMTU, a.AV.DGID); err != nil {
			return q.badValue(a, mask, ib.AttrPathMTU, err)
		}
	}
	if mask&ib.AttrMaxRdAtomic != 0 {
		if err := checkRange("MaxRdAtomic", int(a.MaxRdAtomic), 0, d.limits.RdAtomic); err != nil {
			return err
		}
	}
	if mask&ib.AttrMaxDestRdAtomic != 0 {
		return checkRange("MaxDestRdAtomic", int(a.MaxDestRdAtomic), 0, d.limits.RdAtomic)
	}
	return nil
}

// withZone returns a with the device's zone at a link-local peer.
func (q *QP) withZone(a *ib.Attr, mask ib.AttrMask) *ib.Attr {
	peer := q.owner.dev.own.zoned(a.AV.DGID)
	if mask&ib.AttrAV == 0 || peer == a.AV.DGID.Unmap() {
		return a
	}
	b := *a
	b.AV.DGID = peer
	return &b
}

// badValue says that the device does not take the value of an attribute, as the
// state machine says it of those that it checks.
func (q *QP) badValue(a *ib.Attr, mask, which ib.AttrMask, why error) error {
	from := q.State()
	to := from
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	return &ib.ModifyError{From: from, To: to, Type: q.typ, Attr: which, Detail: why.Error(), Err: ib.ErrAttrValue}
}

// PostSend posts work requests in order. On an error it says how many were
// accepted before the bad one.
func (q *QP) PostSend(wrs []ib.SendWR) (int, error) {
	s := q.shard
	s.lock()
	defer s.unlock()
	if q.closed {
		return 0, ErrClosed
	}
	if q.checked != nil {
		return q.checked.postSend(s.eng.PostSend, wrs, false)
	}
	n, err := s.eng.PostSend(q.core, wrs)
	q.transmit()
	return n, err
}

// PostSends is PostSend of all requests, or of none if one of them is refused.
// Then it says which one.
func (q *QP) PostSends(wrs []ib.SendWR) (int, error) {
	s := q.shard
	s.lock()
	defer s.unlock()
	if q.closed {
		return 0, ErrClosed
	}
	if q.checked != nil {
		return q.checked.postSend(s.eng.PostSends, wrs, true)
	}
	n, err := s.eng.PostSends(q.core, wrs)
	q.transmit()
	return n, err
}

// PostRecv posts receive buffers in order. On an error it says how many were
// accepted before the bad one.
func (q *QP) PostRecv(wrs []ib.RecvWR) (int, error) {
	s := q.shard
	s.lock()
	defer s.unlock()
	if q.closed {
		return 0, ErrClosed
	}
	if q.checked != nil {
		return q.checked.postRecv(s.eng, wrs)
	}
	return s.eng.PostRecv(q.core, wrs)
}

// DrainReceives completes in ERR with WR_FLUSH_ERR some of what the receive
// source of the queue pair has, which is its own (qp.Config.OwnSource). It
// reports whether there may be more, for another call. In other states it does
// nothing.
func (q *QP) DrainReceives() (more bool) {
	q.shard.lock()
	defer q.shard.unlock()
	return !q.closed && engine.DrainReceives(q.core)
}

// Close destroys the queue pair. Work that is outstanding completes no more;
// what the peer has sent is acknowledged. Its events that were not read are
// dropped, and its memory is freed even while a program still holds q.
func (q *QP) Close() error {
	q.closeOnce.Do(q.owner.dev.Tasks(), func() {
		q.destroy()
		q.owner.release(q, kindQP)
	})
	return nil
}

// destroy is Close without the context.
func (q *QP) destroy() {
	if q.checked != nil {
		q.checked.leave()
	}
	s := q.shard
	s.lock()
	s.out.giveTurn(q.core)
	q.closed = true
	s.domains.add(q.core.Core(), -1)
	s.eng.Destroy(q.core)
	q.checked.reset()
	sent := s.out.sendFinal()
	if s.eng.Settle() { // it has left room for others
		s.forwarded.tell()
	}
	s.unlock()
	s.out.await(sent)
	q.detachAll()
	q.leaveSlots()
	if q.core.Raised() {
		q.owner.events.forget(q)
	}
	if q.uses != nil {
		q.uses.detach()
	}
}

// QP returns the open queue pair with a number, nil if there is none.
func (d *Device) QP(n rocev2.QPN) *QP {
	if n > rocev2.QPNMask {
		return nil
	}
	s := d.shardOf(n)
	if s == nil {
		return nil
	}
	s.lock()
	defer s.unlock()
	if core := s.eng.Lookup(n); core != nil {
		return core.User.(*QP)
	}
	return nil
}

// shardFor returns the shard where a queue pair is to live: that of the vector
// of its completion queues, of that for sends first; else one by chance. That
// of the management queue pair is where packets for its number arrive.
func (d *Device) shardFor(c *qp.Config) *shard {
	s := d.shards[int(d.random())&(len(d.shards)-1)]
	var cqs []*CQ
	for _, sink := range []qp.CompletionSink{c.SendCQ, c.RecvCQ} {
		if cq, ok := sink.(*CQ); ok && cq != nil && cq.config.shard != nil {
			cqs = append(cqs, cq)
		}
	}
	if len(cqs) > 0 {
		s = cqs[0].config.shard
	}
	switch {
	case c.Type == ib.GSI:
		s = d.shardOf(engine.GSIQPN)
	case c.QPN != 0: // it was held there
		if t := d.shardOf(c.QPN); t != nil {
			s = t
		}
	}
	for _, cq := range cqs {
		if cq.config.shard != s {
			cq.foreign.Store(true)
		}
	}
	return s
}
