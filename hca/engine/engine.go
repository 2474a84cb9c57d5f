package engine

import (
	"net/netip"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/clock"
	"github.com/gosoftroce/rocev2/transport"
)

// Engine is one adapter. See the package's documentation.
type Engine struct {
	cfg  Config
	sink Sink

	table   table
	turns   turns
	peers   peers
	timers  timers
	acks    AckDelay
	reorder *qp.Pool // for packets after gaps; made with the first native peer

	paths     paths
	finals    []finalPacket
	receipts  receipts
	out       linkWriter
	mixed     mixedWriter
	loop      loopback
	packet    rocev2.Packet        // scratch: the one that is dispatched
	arrival   qp.Arrival           // scratch: how it came
	scratch   qp.Scratch           // of all queue pairs
	misrouted []transport.RxPacket // scratch: of the batch
	groups    groups
	holds     holds
	grouped   []transport.RxPacket // scratch: those of the batch that are for groups

	placing  placing
	counters Counters
	past     qp.Stats      // of queue pairs that are destroyed
	notices  qp.NoticeGate // of the port, see qp.NotifyPerPort
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
	e := &Engine{
		cfg:   c,
		sink:  c.Sink,
		turns: newTurns(),
		peers: peers{limit: c.window().MaxBytes},
		loop:  newLoopback(&c),
		paths: paths{src: c.Addr},
	}
	e.notices, e.peers.notices = c.noticeGate(), c.noticeGate()
	e.mixed.e = e
	e.scratch.Trace = c.Trace
	e.acks = AckDelay{waiting: list{kind: listDelayed}, turns: &e.turns}
	if e.sink == nil {
		e.sink = noSink{}
	}
	return e
}

// NewQP makes a queue pair in state RESET (IBTA 11.2.5.1) that the engine does
// not know yet, see AddQP. The fields Memory, Window, ReadChunk, LongReads,
// MinProbe, NotifyInterval, NotifyHold and Invalidate of c are the engine's to
// fill, and so is QPN unless it is a number that Hold has returned, and
// Congestion if it is nil; else it gets its bounds when the peer is known. It
// may be called beside other methods, if Config.Random may: making the rings
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
	c.Window = e.cfg.foreignWindow()
	if c.Congestion == nil && e.cfg.Congestion != nil {
		c.Congestion = e.cfg.Congestion(c.Window)
	}
	c.MinProbe, c.NotifyInterval, c.NotifyHold = e.cfg.minProbe(), e.cfg.NotifyInterval, e.cfg.NotifyHold
	c.ReadChunk, c.LongReads = e.cfg.readChunk(), e.cfg.ReadChunk == 0
	core, err := qp.New(c)
	if err != nil {
		return nil, err
	}
	q := &QP{User: user, qpn: qpn, held: held, core: core, ref: new(timerRef), class: e.cfg.class(0)}
	q.ref.q = q
	if !core.Connected() {
		q.mtu = int32(c.PortMTU.Bytes())
	}
	q.portVerified = !core.Reliable() // nothing that arrives shows the peer's
	return q, nil
}

// AddQP adds a queue pair that NewQP has made. It reports false if its number
// is taken: then another one must be made. The GSI queue pair has number 1 and
// belongs to the shard that owns that.
func (e *Engine) AddQP(q *QP) bool {
	if e.table.get(q.QPN()) != nil || e.holds.taken(q) {
		return false
	}
	e.table.put(q.QPN(), q)
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

// Lookup returns the queue pair with a number, nil if there is none.
func (e *Engine) Lookup(n rocev2.QPN) *QP { return e.table.get(n) }

// AppendQPNs appends the numbers of all queue pairs, in no order.
func (e *Engine) AppendQPNs(list []rocev2.QPN) []rocev2.QPN {
	for _, n := range e.table.keys {
		if n != 0 {
			list = append(list, n)
		}
	}
	return list
}

// Modify changes state and attributes (IBTA 11.2.5.2). On the way to ERR or
// RESET what q has executed is acknowledged with the next batch.
func (e *Engine) Modify(q *QP, a *ib.Attr, mask ib.AttrMask) error {
	if mask == ib.AttrState && a.State == ib.StateReset { // which is never refused
		e.takeFinal(q)
	}
	if err := q.core.Modify(a, mask); err != nil {
		return err
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateErr {
		e.takeFinal(q)
	}
	if mask&ib.AttrState != 0 && a.State == ib.StateInit { // what comes may be of the next connection
		e.receipts.forget(q.QPN())
	}
	e.count(q)
	if mask&ib.AttrPathMTU != 0 {
		q.mtu, q.mtuRaised = int32(a.PathMTU.Bytes()), false
	}
	if mask&ib.AttrAV != 0 {
		e.setAddress(q)
	}
	e.turns.push(q)
	return nil
}

// isLocal reports whether the peer of q is a queue pair of this device that
// packets reach inside of it.
func isLocal(e *Engine, q *QP) bool {
	return q.path.Dst == e.loop.addr && (!q.core.Connected() || e.cfg.inDevice(q.core.Attr().DestQPN))
}

// setAddress applies the address vector of q.
func (e *Engine) setAddress(q *QP) {
	e.receipts.forget(q.QPN())
	av := q.core.Attr().AV
	if class := e.cfg.class(av.TrafficClass); class != q.class {
		e.turns.remove(q)
		q.class = class
	}
	if !q.core.Reliable() { // what is in flight is not known
		q.path = e.paths.find(&av)
		q.local = isLocal(e, q)
		shareNotices(e, q)
		return
	}
	e.peers.connect(q, av.DGID.Unmap().WithZone(""))
	q.core.SharePauses(&q.peer.pauses)
	shareNotices(e, q)
	q.path = q.peer.path(e.cfg.Addr, transport.Path{
		Dst:          av.DGID,
		TrafficClass: av.TrafficClass,
		HopLimit:     av.HopLimit,
		FlowLabel:    flowLabel(&av),
		SrcPort:      av.SrcPort,
		Slot:         ib.SlotOf(q.core.Attr().DestQPN, av.Slots),
	})
	q.local = isLocal(e, q)
	e.setPeer(q, av.Native || q.local)
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

// Destroy takes a queue pair away (IBTA 11.2.5.4). Work that is outstanding
// completes no more; what it has executed is acknowledged with the next batch.
// Only the getters of q may be called from now on.
func (e *Engine) Destroy(q *QP) {
	e.takeFinal(q)
	e.detachAll(q)
	e.table.remove(q.QPN())
	if q.held {
		Release(e, q.QPN())
	}
	e.turns.remove(q)
	e.acks.waiting.remove(q)
	e.timers.cancel(q)
	q.ref.q = nil
	e.peers.disconnect(q)
	q.core.Close()
	qp.AddStats(&e.past, q.core)
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
		e.count(q)
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

// AckDelay returns the rule for lone acknowledgements.
func (e *Engine) AckDelay() *AckDelay { return &e.acks }

// Counters returns the live counters.
func (e *Engine) Counters() *Counters { return &e.counters }

// QPStats returns the sum of the counters of all queue pairs, those that are
// destroyed included. It looks at every queue pair.
func (e *Engine) QPStats() qp.Stats {
	sum := e.past
	e.table.each(func(q *QP) { qp.AddStats(&sum, q.core) })
	return sum
}
