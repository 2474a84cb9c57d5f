package uverbs

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/uverbs/ring"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// program is a program on a device, with the memory of its rings, and what
// serves its doorbells.
type program struct {
	t    testing.TB
	addr netip.Addr
	dev  *hca.Device
	own  *hca.Context
	pd   *hca.PD
	mr   *hca.MR
	buf  []byte
	ahs  map[uint32]*ib.AddressHandle
	stop chan struct{}
	wg   sync.WaitGroup
}

const bufSize = 1 << 20

func programs(t *testing.T, fc ...fabric.Config) (a, b *program) {
	t.Helper()
	addrs := [2]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	la, lb := fabric.Pair(addrs[0], addrs[1], fc...)
	a = &program{t: t, addr: addrs[0], dev: hca.New(hca.Config{}, la)}
	b = &program{t: t, addr: addrs[1], dev: hca.New(hca.Config{}, lb)}
	for _, p := range []*program{a, b} {
		p.open()
	}
	return a, b
}

func (p *program) open() {
	p.t.Helper()
	p.stop = make(chan struct{})
	p.t.Cleanup(func() {
		close(p.stop)
		p.wg.Wait()
		p.dev.Close()
	})
	var err error
	p.own, err = p.dev.NewContext()
	p.must(err)
	p.pd, err = p.own.AllocPD()
	p.must(err)
	p.buf, p.ahs = fake.Memory(bufSize), map[uint32]*ib.AddressHandle{}
	p.mr, err = p.pd.Register(memreg.Local(p.buf), memreg.Options{
		Access: ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.MWBind | ib.FlushGlobal}, nil)
	p.must(err)
}

func (p *program) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// sge is n bytes of the buffer.
func (p *program) sge(at, n int) ib.SGE { return p.mr.Region().SGE(uint64(at), uint32(n)) }

// addr of a place in the buffer, and the key.
func (p *program) remote(at int) (addr uint64, rkey uint32) {
	return p.mr.Region().Addr() + uint64(at), uint32(p.mr.Region().RKey())
}

// compQueue is a completion queue and what the program has of it.
type compQueue struct {
	fake.Ring
	*CompQueue
	t        testing.TB
	arm      *uint32
	events   chan uint64
	room     atomic.Int64 // for notifications
	overflow atomic.Int32
}

// Notify implements Notifier.
func (q *compQueue) Notify(cookie uint64) bool {
	if q.room.Add(-1) < 0 {
		q.room.Add(1)
		return false
	}
	q.events <- cookie
	return true
}

func (p *program) newCQ(n int) *compQueue {
	p.t.Helper()
	shape := ring.ShapeFor(n, ring.CQElem)
	q := &compQueue{t: p.t, Ring: fake.Ring{Mem: fake.Memory(shape.Size())}, arm: new(uint32), events: make(chan uint64, 1024)}
	q.room.Store(1024)
	var err error
	q.CompQueue, err = NewCompQueue(CompQueueConfig{Memory: q.Mem, Shape: shape, Arm: q.arm, Notifier: q, Cookie: 0xc0ffee,
		Overflow: func() { q.overflow.Add(1) }})
	p.must(err)
	return q
}

// wait takes n completions, and sleeps where there are none.
func (q *compQueue) wait(n int) []fake.WC {
	q.t.Helper()
	var got []fake.WC
	for {
		for len(got) < n {
			c, ok := q.Poll()
			if !ok {
				break
			}
			got = append(got, c)
		}
		if len(got) == n {
			return got
		}
		atomic.StoreUint32(q.arm, 2)
		if q.Producer() != q.Ring.Consumer() {
			continue
		}
		select {
		case <-q.events:
		case <-time.After(2 * time.Minute):
			q.t.Fatalf("%d completions have come, not %d: %+v", len(got), n, got)
		}
	}
}

// expect waits for completions with these IDs, in order, all with one status.
func (q *compQueue) expect(status ib.Status, ids ...uint64) []fake.WC {
	q.t.Helper()
	got := q.wait(len(ids))
	for i, c := range got {
		if c.ID != ids[i] || c.Status != status {
			q.t.Fatalf("completion %d is %+v; want ID %d, %v", i, c, ids[i], status)
		}
	}
	return got
}

// none fails if there is a completion.
func (q *compQueue) none() {
	q.t.Helper()
	if c, ok := q.Poll(); ok {
		q.t.Fatalf("a completion that nobody expects: %+v", c)
	}
}

// queuePair is a queue pair and what the program has of it.
type queuePair struct {
	p *program
	*Queues
	send, recv fake.Ring
	cq         *compQueue
	qp         *hca.QP
	bell       chan struct{}
	peer       *queuePair // where a test needs it
}

type pairOptions struct {
	typ              ib.QPType
	depth, sge, data int
	cq               *compQueue
	srq              *SharedRecvQueue
	all              bool
}

func (p *program) newQP(o pairOptions) *queuePair {
	p.t.Helper()
	if o.typ == 0 {
		o.typ = ib.RC
	}
	if o.depth == 0 {
		o.depth = 15
	}
	if o.sge == 0 {
		o.sge = 3
	}
	if o.cq == nil {
		o.cq = p.newCQ(255)
	}
	ss, rs := ring.ShapeFor(o.depth, ring.SendElem(o.sge, o.data)), ring.ShapeFor(o.depth, ring.RecvElem(o.sge))
	q := &queuePair{p: p, cq: o.cq, send: fake.Ring{Mem: fake.Memory(ss.Size())}, recv: fake.Ring{Mem: fake.Memory(rs.Size())},
		bell: make(chan struct{}, 1)}
	var err error
	q.Queues, err = NewQueues(QueuesConfig{Type: o.typ, Domain: p.pd, SignalAll: o.all, Send: q.send.Mem, SendShape: ss, MaxSendSGE: o.sge,
		MaxInline: o.data, Recv: q.recv.Mem, RecvShape: rs, MaxRecvSGE: o.sge, SRQ: o.srq, SendCQ: o.cq.CompQueue, RecvCQ: o.cq.CompQueue,
		IPv4: true, Handle: func(n uint32) *ib.AddressHandle { return p.ahs[n] }, Kick: q.ring})
	p.must(err)
	q.qp, err = p.own.CreateQP(q.Config())
	p.must(err)
	q.Start(q.qp)
	p.wg.Go(func() {
		for {
			select {
			case <-p.stop:
				return
			case <-q.bell:
			}
			for q.Drain(4) {
			}
		}
	})
	return q
}

// ring rings the doorbell.
func (q *queuePair) ring() {
	select {
	case q.bell <- struct{}{}:
	default:
	}
}

// post posts requests and rings the doorbell.
func (q *queuePair) post(wrs ...fake.SendWR) {
	q.p.t.Helper()
	for _, w := range wrs {
		if !q.send.PostSend(w) {
			q.p.t.Fatalf("no room for request %d", w.ID)
		}
	}
	q.ring()
}

// receive posts receives of n bytes at places of the buffer of n bytes each.
func (q *queuePair) receive(n int, ids ...uint64) {
	q.p.t.Helper()
	for _, id := range ids {
		if !q.recv.PostRecv(id, q.p.sge(int(id)*n, n)) {
			q.p.t.Fatalf("no room for receive %d", id)
		}
	}
}

const allRights = ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.FlushGlobal

// attrInit, attrRTR and attrRTS are what takes the queue pair to these states.
func (q *queuePair) attrInit() (*ib.Attr, ib.AttrMask) {
	a, mask := &ib.Attr{State: ib.StateInit, Port: 1, Access: allRights, QKey: 0x1234}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort
	if q.Queues.send.typ == ib.UD {
		return a, mask | ib.AttrQKey
	}
	return a, mask | ib.AttrAccess
}

func (q *queuePair) attrRTR(peer *queuePair) (*ib.Attr, ib.AttrMask) {
	a, mask := &ib.Attr{State: ib.StateRTR, PathMTU: rocev2.MTU1024, MaxDestRdAtomic: 16, MinRNRTimer: 1}, ib.AttrState
	typ := q.Queues.send.typ
	if typ != ib.UD {
		a.AV, a.DestQPN = ib.AddressVector{DGID: peer.p.addr, HopLimit: 64}, peer.qp.QPN()
		mask |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	}
	if typ == ib.RC {
		mask |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	}
	return a, mask
}

func (q *queuePair) attrRTS() (*ib.Attr, ib.AttrMask) {
	mask := ib.AttrState | ib.AttrSQPSN
	if q.Queues.send.typ == ib.RC {
		mask |= ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
	}
	return &ib.Attr{State: ib.StateRTS, Timeout: 14, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: 16}, mask
}

func (q *queuePair) init() {
	q.p.t.Helper()
	q.p.must(q.Modify(q.attrInit()))
}

// connect takes the queue pair from RESET to RTS.
func (q *queuePair) connect(peer *queuePair) {
	q.p.t.Helper()
	q.init()
	q.up(peer)
}

// up takes the queue pair from INIT to RTS.
func (q *queuePair) up(peer *queuePair) {
	q.p.t.Helper()
	q.p.must(q.Modify(q.attrRTR(peer)))
	q.p.must(q.Modify(q.attrRTS()))
}

// pair makes two connected queue pairs.
func pair(t *testing.T, o pairOptions) (a, b *queuePair) {
	t.Helper()
	pa, pb := programs(t)
	ob := o
	a, b = pa.newQP(o), pb.newQP(ob)
	a.connect(b)
	b.connect(a)
	return a, b
}
