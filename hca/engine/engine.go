package engine

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// All ways into an engine are methods in this file. What a message passes:
//
//  1. PostSend queues a request in its queue pair, which comes to its turn
//     (turns.go).
//  2. Fill has the queue pair whose turn it is write packets into a batch, up
//     to what is left of its turn and of its peer's limit (sender.pull in
//     fill.go), and sets its timer (timers.go). The driver sends the batch.
//  3. At the peer, Receive finds the queue pair that a packet names and hands
//     it over (receiver.dispatch and deliver in receive.go). Packets in the
//     middle of a message go as a run (run.go), also where the link has placed
//     them already (place.go). The queue pair comes to its turn with the
//     acknowledgement.
//  4. Fill writes the acknowledgement, as in step 2, unless it may wait for
//     what the program posts (ackdelay.go).
//  5. Here, Receive hands the acknowledgement to the queue pair, which
//     completes the request, as in step 3.
//  6. If nothing comes, the time that Deadline has returned passes. Advance
//     has the queue pair send again, as in step 2.

// Engine is one adapter. See the package's documentation.
type Engine struct {
	shared
	in  receiver
	out sender

	reorder *qp.Pool      // for packets after gaps; made with the first native peer
	scratch qp.Scratch    // of all queue pairs
	past    qp.Stats      // of queue pairs that are destroyed
	notices qp.NoticeGate // of the port, see qp.NotifyPerPort
}

// New makes an engine without queue pairs.
func New(c Config) *Engine {
	c.Shards = max(c.Shards, 1)
	if c.OwnShards == 0 {
		c.FirstShard, c.OwnShards = 0, c.Shards
	}
	if c.Port == 0 {
		c.Port = rocev2.UDPPort
	}
	if c.Shards&(c.Shards-1) != 0 || c.Shard < 0 || c.Shard >= c.Shards {
		panic("engine: the number of shards must be a power of two, and the shard one of them")
	}
	e := &Engine{shared: shared{
		cfg:   c,
		sink:  c.Sink,
		peers: peers{limit: c.window().MaxBytes},
		loop:  newLoopback(&c),
		paths: paths{src: c.Addr},
	}}
	if e.sink == nil {
		e.sink = noSink{}
	}
	e.notices, e.peers.notices = c.noticeGate(), c.noticeGate()
	e.scratch.Trace = c.Trace
	e.in.shared, e.finals.shared = &e.shared, &e.shared
	e.out = newSender(&e.shared)
	return e
}

// NewQP makes a queue pair in state RESET (IBTA 11.2.5.1) that the engine does
// not know yet, see AddQP. The fields Memory, Window, ReadChunk, LongReads,
// NotifyInterval, NotifyHold and Invalidate of c are the engine's to fill, and
// so are QPN unless it is a number that Hold has returned, MinProbe if it is 0,
// and Congestion if it is nil; else it gets its bounds when the peer is known.
// It may be called beside other methods, if Config.Random may: making the rings
// takes a while.
func (e *Engine) NewQP(c qp.Config, user any) (*QP, error) {
	mem, pd, qpn, held := e.cfg.Memory, c.PD, c.QPN, c.QPN != 0
	switch {
	case c.Type == ib.GSI:
		qpn, held = GSIQPN, false
	case !held:
		qpn = e.cfg.randomQPN()
	}
	c.QPN = qpn
	c.Memory, c.Scratch = mem, &e.scratch
	c.Invalidate = func(key ib.Key) ib.Fault { return mem.Invalidate(pd, qpn, key) }
	e.cfg.fill(&c)
	core, err := qp.New(c)
	if err != nil {
		return nil, err
	}
	q := &QP{User: user, qpn: qpn, held: held, core: core, ref: new(timerRef), class: e.cfg.class(0), whole: e.cfg.turn()}
	q.ref.q = q
	q.fresh.Value, q.round.Value, q.limited.Value = q, q, q
	if !core.Connected() {
		q.mtu = int32(c.PortMTU.Bytes())
		q.loops = e.loop.addr.IsValid()
	}
	q.portVerified = !core.Reliable() // nothing that arrives shows the peer's
	return q, nil
}

// AddQP adds a queue pair that NewQP has made. It reports false if its number
// is taken: then another one must be made. The GSI queue pair has number 1 and
// belongs to the shard that owns that.
func (e *Engine) AddQP(q *QP) bool {
	if e.table.get(q.qpn) != nil || e.in.holds.taken(q) {
		return false
	}
	e.table.put(q.qpn, q)
	return true
}

// CreateQP makes a queue pair in state RESET, see NewQP, and adds it.
func (e *Engine) CreateQP(c qp.Config, user any) (*QP, error) {
	for {
		q, err := e.NewQP(c, user)
		switch {
		case err != nil || e.AddQP(q):
			return q, err
		case c.Type == ib.GSI:
			return nil, ib.ErrGSIInUse
		}
	}
}

// Modify changes state and attributes (IBTA 11.2.5.2). On the way to ERR or
// RESET what q has executed is acknowledged with the next batch.
func (e *Engine) Modify(q *QP, a *ib.Attr, mask ib.AttrMask) error {
	if mask == ib.AttrState && a.State == ib.StateReset { // which is never refused
		e.finals.take(q)
		q.security = SecurityClear
	}
	if err := q.core.Modify(a, mask); err != nil {
		return err
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateErr {
		e.finals.take(q)
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateInit { // what comes may be of the next connection
		e.finals.receipts.forget(q.qpn)
	}
	e.turns.count(q)
	if mask&ib.AttrPathMTU != 0 {
		q.mtu, q.mtuRaised = int32(a.PathMTU.Bytes()), false
	}
	if mask&ib.AttrAV != 0 {
		e.setAddress(q)
	}
	e.turns.push(q)
	return nil
}

// PostSend posts work requests in order (IBTA 11.4.1.1). On an error it returns
// how many were accepted before the bad one.
func (e *Engine) PostSend(q *QP, wrs []ib.SendWR) (int, error) {
	e.turns.push(q)
	for i := range wrs {
		if err := q.core.PostSend(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// PostSends is PostSend of all requests, or of none if one of them is refused.
// Then it returns which one.
func (e *Engine) PostSends(q *QP, wrs []ib.SendWR) (int, error) {
	e.turns.push(q)
	return q.core.PostSends(wrs)
}

// PostRecv posts receive buffers in order (IBTA 11.4.1.2). On an error it
// returns how many were accepted before the bad one.
func (e *Engine) PostRecv(q *QP, wrs []ib.RecvWR) (int, error) {
	for i := range wrs {
		if err := q.core.PostRecv(&wrs[i]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// DrainReceives flushes in ERR some of what the receive source of q has, which
// is its own, and reports whether there may be more. See qp.Config.OwnSource.
func DrainReceives(q *QP) (more bool) { return qp.DrainReceives(q.core) }

// Fill fills out, which is empty, with packets of some classes of those whose
// turn it is, the highest class first, until it is full or there is nothing
// left to send. Packets to the own address pass inside the engine; what they
// call for goes with the next call. So the driver calls Fill until Pending
// reports false.
func (e *Engine) Fill(now clock.Time, out *transport.TxBatch, classes Classes) (r Ready) {
	e.now = now
	e.out.fill(now, out, classes)
	if len(e.loop.all) > 0 {
		e.in.loopBack(now, &r, &e.loop)
	}
	r.Held = len(e.out.acks.waiting) > 0
	return r
}

// Settle ends the turns that come first of queue pairs that have nothing to
// send, as Fill would, and returns what Pending reports then: true only where
// Fill has a queue pair to ask.
func (e *Engine) Settle() (pending bool) { return e.out.settle() || len(e.finals.packets) > 0 }

// Pending reports whether there may be something to send.
func (e *Engine) Pending() bool {
	return len(e.finals.packets) > 0 || e.turns.front(AllClasses) != nil || len(e.peers.limited) > 0 && e.peers.admits()
}

// Classes returns the classes in which a queue pair has its turn, or a packet
// waits. It ends no turn, so it may say so of one that has nothing to send.
func (e *Engine) Classes() Classes {
	if len(e.peers.limited) > 0 {
		e.peers.admit(&e.turns)
	}
	c := e.turns.ready()
	for i := range e.finals.packets {
		c |= 1 << e.finals.packets[i].class
	}
	return c
}

// FinalPackets returns how many packets of queue pairs that have gone wait for
// the next batch.
func (e *Engine) FinalPackets() int { return len(e.finals.packets) }

// DelayAcks reports at now whether lone acknowledgements wait for the driver's
// next call of it, and sees to it that they do, or leave with the next batches
// (ackdelay.go). Without a call they leave. Only AcksAtPoll and AcksAtRequests
// need the time.
func (e *Engine) DelayAcks(now clock.Time, m AckMoment) (wait bool) { return e.out.acks.at(now, m) }

// Place says where the payloads of packets from src go that are about to be
// received, see transport.Placer. There are up to n packets of size bytes of
// payload; the first has the header h. The view is pinned unless there is
// nothing. Its memory may be used until something else happens to the engine,
// or the pin is dropped.
func (e *Engine) Place(src netip.AddrPort, h *[rocev2.BTHLen]byte, size, n int) (memreg.View, []byte) {
	return e.in.place(src, h, size, n)
}

// Receive handles a batch that has arrived (IBTA 9.6): the runs whose payloads
// lie where Place has said, and then the packets. What they call for goes with
// the next Fill.
func (e *Engine) Receive(now clock.Time, packets []transport.RxPacket, placed ...transport.PlacedRun) (r Ready) {
	e.now = now
	e.in.receive(now, &r, packets, placed)
	return r
}

// Fetched has q go on, which waited for memory that Sink.Fetch has asked for.
func (e *Engine) Fetched(now clock.Time, q *QP, f qp.Fetch) {
	q.core.Fetched(now, f)
	e.turns.push(q)
}

// Deadline returns when Advance wants to be called, and whether at all. There
// may be nothing to do then.
func (e *Engine) Deadline() (clock.Time, bool) { return e.timers.heap.Min() }

// Due reports whether Advance has something to do at now. A driver that then
// looks for packets first is saved from a spurious retransmission.
func (e *Engine) Due(now clock.Time) bool {
	q := e.timers.take(now)
	if q == nil {
		return false
	}
	e.timers.schedule(now, q, now)
	return true
}

// Advance does what is due at now.
func (e *Engine) Advance(now clock.Time) {
	for q := e.timers.take(now); q != nil; q = e.timers.take(now) {
		q.core.HandleTimeout(now)
		e.turns.count(q)
		e.turns.push(q)
	}
}

// PacketTooBig raises EventPathMTU, once, for every queue pair whose packets to
// dst do not fit any more into what the path carries. They go on trying: the
// MTU may come back before they give up.
func (e *Engine) PacketTooBig(dst netip.Addr, carries rocev2.MTU) {
	e.table.each(func(q *QP) {
		if q.path != nil && q.path.Dst == dst && !q.mtuRaised && q.core.Attr().PathMTU > carries {
			q.mtuRaised = true
			q.raise(e.sink, ib.EventPathMTU)
		}
	})
}

// Attach has q, a UD queue pair of the engine, receive the datagrams that are
// sent to a group: an address as packets have it, without a zone. It reports
// false if q is attached already. The link must have joined the group.
func (e *Engine) Attach(q *QP, group netip.Addr) bool { return e.in.groups.attach(q, group) }

// Detach ends what Attach has begun. It reports false if q is not attached.
func (e *Engine) Detach(q *QP, group netip.Addr) bool { return e.in.groups.detach(q, group) }

// Attached returns how many queue pairs are attached to a group.
func (e *Engine) Attached(group netip.Addr) int { return len(e.in.groups.members[group]) }

// Hold returns a number that no queue pair has, and holds it for Release or
// NewQP (hold.go).
func (e *Engine) Hold() rocev2.QPN {
	for {
		n := e.cfg.randomQPN()
		if e.table.get(n) == nil && e.in.holds.hold(n) {
			return n
		}
	}
}

// Release holds a number no longer, and forgets what was kept. It does nothing
// for a number that is not held.
func (e *Engine) Release(n rocev2.QPN) {
	e.in.holds.release(n)
	if q := e.table.get(n); q != nil {
		q.held = false
	}
}

// Kept returns the packets that have come for a number that was held, and holds
// it no longer. The caller has the engine receive them.
func (e *Engine) Kept(n rocev2.QPN) []transport.RxPacket {
	packets := e.in.holds.packets(n)
	e.Release(n)
	return packets
}

// Heard reports whether a packet with a PSN was kept that has come from an
// address for a number that is held. Only the peer that was told knows both.
func (e *Engine) Heard(n rocev2.QPN, from netip.Addr, psn rocev2.PSN) bool {
	return e.in.holds.heard(n, from, psn)
}

// Destroy takes a queue pair away (IBTA 11.2.5.4). Work that is outstanding
// completes no more; what it has executed is acknowledged with the next batch.
// Only the getters of q may be called from now on.
func (e *Engine) Destroy(q *QP) {
	e.finals.take(q)
	e.in.groups.detachAll(q)
	e.table.remove(q.qpn)
	if q.held {
		e.in.holds.release(q.qpn)
		q.held = false
	}
	e.turns.remove(q)
	e.out.acks.forget(q)
	e.timers.cancel(q)
	q.ref.q = nil
	e.peers.disconnect(q)
	q.core.Close()
	qp.AddStats(&e.past, q.core)
}

// Fail moves every queue pair to ERR, where its requests complete with
// WR_FLUSH_ERR: the device has failed, and nothing is sent any more.
func (e *Engine) Fail() {
	var all []*QP
	e.table.each(func(q *QP) { all = append(all, q) })
	for _, q := range all {
		// One that is in RESET stays: it has nothing.
		_ = e.Modify(q, &ib.Attr{State: ib.StateErr}, ib.AttrState)
	}
}
