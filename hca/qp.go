package hca

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/gosoftroce/rocev2/clock"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// QP is a queue pair on a device. Its methods may be called from any
// goroutine.
type QP struct {
	shard *shard
	owner *Context
	qpn   rocev2.QPN

	userData atomic.Value // the layer above's; set once, but Device.QP may be asked before

	// Guarded by the shard's lock.
	core     *qp.QP
	path     *transport.Path
	links    [qpLists]qpLink
	timerAt  clock.Time // of the valid entry in the heap; 0: there is none
	ref      *qpRef     // for the heap
	raised   bool       // there may be events of it in the device's queue
	closed   bool
	own      bool   // the program says that the peer is of our own kind
	wide     bool   // it has the window of one
	local    bool   // it is on this device, and packets to it loop back
	proven   bool   // a packet came whose PSN was right
	peerPort uint16 // the only source port of the peer's packets; 0: any
	peer     *peer
	inFlight int  // bytes counted in peer
	silent   int  // which of its accounts counts them
	turn     int  // bytes left of the turn to send
	idle     bool // only keeps its place in the round
	mtu      int  // path MTU in bytes
	mtuTold  bool // EventPathMTU was raised

	closeOnce sync.Once
}

// CreateQP makes a queue pair in state RESET. The fields QPN, Memory, Window,
// ReadChunk, MinProbe and Invalidate of c are the device's to fill. Sinks that
// are completion queues are open and of the same device.
func (o *Context) CreateQP(c qp.Config) (*QP, error) {
	d := o.dev
	for _, r := range []struct {
		what       string
		got, least int
		most       int
	}{
		{"MaxSendWR", c.MaxSendWR, 0, ib.MaxWR},
		{"MaxRecvWR", c.MaxRecvWR, 0, ib.MaxWR},
		{"MaxSendSGE", c.MaxSendSGE, 0, ib.MaxSGE},
		{"MaxRecvSGE", c.MaxRecvSGE, 0, ib.MaxSGE},
		{"MaxInline", c.MaxInline, 0, ib.MaxInline},
	} {
		if err := checkRange(r.what, r.got, r.least, r.most); err != nil {
			return nil, err
		}
	}
	for _, sink := range []struct {
		name string
		sink qp.CompletionSink
	}{{"SendCQ", c.SendCQ}, {"RecvCQ", c.RecvCQ}} {
		if cq, ok := sink.sink.(*CQ); ok {
			if err := cq.usable(d); err != nil {
				return nil, fmt.Errorf("%s: %w", sink.name, err)
			}
		}
	}
	if err := d.reserve(&d.nQP, ib.MaxQP, "queue pairs"); err != nil {
		return nil, err
	}
	q, err := o.createQP(c)
	if err != nil {
		d.unreserve(&d.nQP)
		return nil, err
	}
	if err := o.adopt(q, &o.qps, ib.MaxQP, "queue pairs"); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

func (o *Context) createQP(c qp.Config) (*QP, error) {
	d := o.dev
	c.Memory = d.mem
	c.Invalidate = func(key ib.Key) bool { return d.mem.Invalidate(c.PD, c.QPN, key) == ib.FaultNone }
	c.Window = d.foreignWindow()
	c.MinProbe = d.minProbe()
	c.ReadChunk = d.readChunk()
	for {
		c.QPN = rocev2.QPN(random32()) & rocev2.QPNMask
		if c.QPN < minQPN || c.QPN == rocev2.MulticastQPN {
			continue
		}
		s := d.shardOf(c.QPN)
		core, err := qp.New(c)
		if err != nil {
			return nil, err
		}
		q := &QP{shard: s, owner: o, qpn: c.QPN, core: core, ref: new(qpRef)}
		q.ref.q = q
		s.mu.Lock()
		taken := s.qps.get(c.QPN) != nil
		if !taken && !s.closed {
			s.qps.put(c.QPN, q)
		}
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if !taken {
			return q, nil
		}
	}
}

// QPN returns the queue pair number.
func (q *QP) QPN() rocev2.QPN { return q.qpn }

// SetUserData attaches a value of the layer above, once, before any other use.
func (q *QP) SetUserData(v any) { q.userData.Store(v) }

// UserData returns what SetUserData attached.
func (q *QP) UserData() any { return q.userData.Load() }

// State returns the current state.
func (q *QP) State() ib.State {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.core.State()
}

// Attr returns the current attributes.
func (q *QP) Attr() ib.Attr {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return q.core.Attr()
}

// Stats returns the queue pair's counters.
func (q *QP) Stats() qp.Stats {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	return *q.core.Stats()
}

// Modify changes state and attributes (IBTA 11.2.5.2). AV.SrcPort may be
// AutoSourcePort; Attr then returns the port that was chosen.
func (q *QP) Modify(a *ib.Attr, mask ib.AttrMask) error {
	if err := q.checkDevice(a, mask); err != nil {
		return err
	}
	a, err := q.withSourcePort(q.withZone(a, mask), mask)
	if err != nil {
		return err
	}
	s := q.shard
	s.mu.Lock()
	sent, err := q.modify(a, mask)
	s.mu.Unlock()
	s.await(sent)
	return err
}

// modify is Modify with the shard locked. It returns what to await.
func (q *QP) modify(a *ib.Attr, mask ib.AttrMask) (sent <-chan struct{}, err error) {
	s := q.shard
	if q.closed {
		return nil, ErrClosed
	}
	if mask == ib.AttrState && a.State == ib.StateReset { // which is never refused
		s.part(q)
	}
	if err := q.core.Modify(s.dev.now(), a, mask); err != nil {
		return nil, err
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateErr {
		s.part(q)
	}
	s.count(q)
	if mask&ib.AttrPathMTU != 0 {
		q.mtu, q.mtuTold = a.PathMTU.Bytes(), false
	}
	if mask&ib.AttrAV != 0 {
		av := q.core.AV()
		s.connectPeer(q, av.DGID.Unmap().WithZone(""))
		q.core.SharePauses(&q.peer.pauses)
		q.path = q.peer.path(s.dev.addr, transport.Path{
			Dst:          av.DGID,
			TrafficClass: av.TrafficClass,
			HopLimit:     av.HopLimit,
			FlowLabel:    av.FlowLabel,
			SrcPort:      av.SrcPort,
		})
		q.local = q.path.Dst == s.dev.loopAddr
		s.meet(q, av.Native || q.local)
	}
	s.work(q)
	if mask&ib.AttrState != 0 && (a.State == ib.StateErr || a.State == ib.StateReset) {
		sent = s.sendPartings()
	}
	return sent, nil
}

// checkDevice checks what the state machine cannot know: what this device and
// its link can do.
func (q *QP) checkDevice(a *ib.Attr, mask ib.AttrMask) error {
	d := q.shard.dev
	if mask&ib.AttrAV != 0 {
		if err := d.checkPeer(a.AV.DGID); err != nil {
			return q.badValue(a, mask, ib.AttrAV, err)
		}
	}
	if mask&ib.AttrPathMTU != 0 && a.PathMTU.Valid() {
		if err := d.checkPathMTU(a.PathMTU, a.AV.DGID); err != nil {
			return q.badValue(a, mask, ib.AttrPathMTU, err)
		}
	}
	if mask&ib.AttrMaxQPRdAtomic != 0 {
		if err := checkRange("MaxRdAtomic", int(a.MaxRdAtomic), 0, ib.MaxRdAtomic); err != nil {
			return err
		}
	}
	if mask&ib.AttrMaxDestRdAtomic != 0 {
		return checkRange("MaxDestRdAtomic", int(a.MaxDestRdAtomic), 0, ib.MaxRdAtomic)
	}
	return nil
}

// withZone returns a with the device's zone at a link-local peer, which is on the
// device's link. The peer's own name for that link, which may have come with its
// address, says nothing here.
func (q *QP) withZone(a *ib.Attr, mask ib.AttrMask) *ib.Attr {
	peer := a.AV.DGID.Unmap()
	zone := ""
	if peer.Is6() && peer.IsLinkLocalUnicast() {
		zone = q.shard.dev.addr.Zone()
	}
	if mask&ib.AttrAV == 0 || peer.Zone() == zone {
		return a
	}
	b := *a
	b.AV.DGID = peer.WithZone(zone)
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
	return &ib.ModifyError{From: from, To: to, Service: rocev2.ServiceRC, Attr: which, Detail: why.Error(), Err: ib.ErrAttrValue}
}

func (d *Device) checkPeer(peer netip.Addr) error {
	linkLocal := func(a netip.Addr) bool { return a.Is6() && a.IsLinkLocalUnicast() }
	switch {
	case !peer.IsValid():
		return errors.New("the peer has no address: its Endpoint, or AV.DGID, was not filled in")
	case peer.IsUnspecified():
		return fmt.Errorf("peer address %v is not an address of a host", peer)
	case peer.IsMulticast():
		return fmt.Errorf("peer address %v is a multicast group; a connected queue pair has one peer", peer)
	case peer.Unmap().Is4() != d.addr.Unmap().Is4():
		return fmt.Errorf("peer address %v and device address %v are of different IP versions", peer, d.addr)
	case linkLocal(peer) && !linkLocal(d.addr):
		return fmt.Errorf("peer address %v is link-local and device address %v is not, so that no link is named: open the device on the link-local address of that interface", peer, d.addr)
	}
	return nil
}

// PostSend posts work requests in order. On an error it says how many were
// accepted before the bad one.
func (q *QP) PostSend(wrs []ib.SendWR) (int, error) {
	s := q.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.closed {
		return 0, ErrClosed
	}
	now := s.dev.now()
	for i := range wrs {
		if err := q.core.PostSend(now, &wrs[i]); err != nil {
			s.work(q)
			return i, err
		}
	}
	s.work(q)
	return len(wrs), nil
}

// PostRecv posts receive buffers in order. On an error it says how many were
// accepted before the bad one.
func (q *QP) PostRecv(wrs []ib.RecvWR) (int, error) {
	s := q.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.closed {
		return 0, ErrClosed
	}
	now := s.dev.now()
	for i := range wrs {
		if err := q.core.PostRecv(now, &wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// work sends what a queue pair has come to have to say. The shard is locked.
func (s *shard) work(q *QP) {
	s.ready.push(q)
	s.flushBut(s.lead.aside.Load(), q)
}

// Close destroys the queue pair. Work that is outstanding completes no more;
// what the peer has sent is acknowledged. Its events that nobody has read are
// dropped, and its memory is free also while somebody still holds q.
func (q *QP) Close() error {
	q.closeOnce.Do(func() {
		s := q.shard
		s.mu.Lock()
		s.giveTurn(q)
		s.part(q)
		q.closed = true
		s.qps.remove(q.qpn)
		s.ready.remove(q)
		s.delayed.remove(q)
		s.unschedule(q)
		q.ref.q = nil
		s.disconnectPeer(q)
		q.core.Close(s.dev.now())
		s.past.Add(q.core.Stats())
		sent := s.sendPartings()
		if s.next() != nil { // it has left room for others
			s.kickTransmitter()
		}
		s.mu.Unlock()
		s.await(sent)
		if q.raised {
			s.dev.events.forget(q, nil)
		}
		q.owner.release(q, &q.owner.qps)
		s.dev.unreserve(&s.dev.nQP)
	})
	return nil
}
