package uverbs

import (
	"bytes"
	"encoding/binary"
	"math"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
)

func TestQueryDevice(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := open(t, d, smallRings)
	refused(a, abi.EINVAL, abi.QueryDevice, abi.QueryDeviceReq{}) // there is no context yet
	a.getContext()
	refused(a, abi.EINVAL, abi.GetContext, abi.GetContextReq{})

	got := ask[abi.QueryDeviceResp](a, abi.QueryDevice, abi.QueryDeviceReq{})
	if got.VendorId != 0xffffff || got.PhysPortCnt != 1 || got.MaxQp == 0 || got.MaxSge != ib.MaxSGE {
		t.Errorf("device: %+v", got)
	}
	if want := []byte{1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got.NodeGuid[:], want) {
		t.Errorf("GUID %x, want %x", got.NodeGuid, want)
	}
	var ex abi.ExQueryDeviceResp
	write(a, fake.Extended(abi.QueryDevice, 304, 0, abi.ExQueryDeviceReq{}), &ex)
	if ex.Base != got || ex.ResponseLength != 304 || ex.DeviceCapFlagsEx&abi.CapAtomicWrite == 0 {
		t.Errorf("extended: %+v", ex)
	}
	r := write(a, fake.Extended(abi.QueryDevice, 184, 0, abi.ExQueryDeviceReq{})) // of an older program
	if n := binary.LittleEndian.Uint32(r.Resp[180:]); len(r.Resp) != 184 || n != 184 {
		t.Errorf("a reply of %d bytes says %d", len(r.Resp), n)
	}

	port := ask[abi.QueryPortResp](a, abi.QueryPort, abi.QueryPortReq{PortNum: 1})
	if port.State != 4 || port.PhysState != 5 || port.LinkLayer != 2 || port.MaxMtu != 5 || port.MaxMsgSz != 1<<31 {
		t.Errorf("port: %+v", port)
	}
	refused(a, abi.EINVAL, abi.QueryPort, abi.QueryPortReq{PortNum: 2})
}

// Programs on two devices send, write, read and do atomics. Completion events
// come through the channel, and destroying says how many were read.
func TestReliableConnection(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(63), b.newCQ(63)
	qa, qb := connected(ib.RC, a, b, ca, cb)

	copy(a.buf, "over the wire")
	for i := range uint64(100) {
		qb.recv.PostRecv(1000+i, b.sge(4096, 256))
		qa.post(fake.SendWR{ID: i, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 13)}})
		cb.expect(ib.StatusSuccess, 1000+i)
		ca.expect(ib.StatusSuccess, i)
	}
	if got := string(b.buf[4096:][:13]); got != "over the wire" {
		t.Errorf("received %q", got)
	}
	got := ask[abi.QueryQPResp](a, abi.QueryQP, abi.QueryQPReq{QpHandle: qa.QpHandle})
	if got.QpState != uint8(ib.StateRTS) || got.DestQpNum != qb.Qpn || got.Dest.Dgid != db.Dev.Addr().As16() || got.Timeout != 14 ||
		got.MaxSendWr != qa.MaxSendWr || got.PathMtu != 3 || got.MaxRdAtomic != 16 {
		t.Errorf("query: %+v", got)
	}
	refused(b, abi.EBUSY, abi.DestroyCQ, abi.DestroyCQReq{CqHandle: cb.handle})
	ask[abi.DestroyQPResp](b, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qb.QpHandle})
	if ev := ask[abi.DestroyCQResp](b, abi.DestroyCQ, abi.DestroyCQReq{CqHandle: cb.handle}); ev.CompEventsReported != cb.read || cb.read == 0 {
		t.Errorf("%d completion events are reported, %d were read", ev.CompEventsReported, cb.read)
	}
	refused(b, abi.ENOENT, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qb.QpHandle})
}

// A datagram goes where its address handle says.
func TestAddressHandles(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(15), b.newCQ(15)
	qa, qb := connected(ib.UD, a, b, ca, cb)
	var ah abi.CreateAHResp
	var num abi.CreateAHDriverResp
	dest := attrOfDest(ptr(b.dest()))
	write(a, fake.Plain(abi.CreateAH, 12, abi.CreateAHReq{PdHandle: a.pd, Attr: *dest}), &ah, &num)
	if num.AhNum == 0 {
		t.Error("a handle with number 0, which is none")
	}
	for i, n := range []uint32{num.AhNum, 0} { // by its number, and by what the request says
		qb.recv.PostRecv(7, b.sge(4096, 256))
		copy(a.buf, "datagram")
		qa.post(fake.SendWR{ID: 1, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 8)}, AH: n, DGID: db.Dev.Addr().As16(), QPN: qb.Qpn, QKey: qkey})
		ca.expect(ib.StatusSuccess, 1)
		wc := cb.expect(ib.StatusSuccess, 7)[0]
		if wc.ByteLen != 48 || wc.Flags&fake.GRH == 0 || wc.SrcQPN != qa.Qpn || wc.SL != 2 {
			t.Errorf("%d: %+v", i, wc)
		}
	}
	if got := b.buf[4096+40:][:8]; string(got) != "datagram" {
		t.Errorf("received %q", got)
	}
	refused(a, abi.EBUSY, abi.DeallocPD, abi.DeallocPDReq{PdHandle: a.pd})
	tell(a, abi.DestroyAH, abi.DestroyAHReq(ah))
	refused(a, abi.ENOENT, abi.DestroyAH, abi.DestroyAHReq(ah))
	qa.post(fake.SendWR{ID: 2, Opcode: fake.Send, SGE: []ib.SGE{a.sge(0, 8)}, AH: num.AhNum, QPN: qb.Qpn, QKey: qkey})
	ca.expect(ib.StatusLocQPOpErr, 2)
	for what, bad := range map[string]func(*abi.AHAttr){
		"no route":       func(x *abi.AHAttr) { x.IsGlobal = 0 },
		"another port":   func(x *abi.AHAttr) { x.PortNum = 2 },
		"another GID":    func(x *abi.AHAttr) { x.Grh.SgidIndex = 1 },
		"nobody":         func(x *abi.AHAttr) { x.Grh.Dgid = [16]byte{} },
		"another family": func(x *abi.AHAttr) { x.Grh.Dgid = [16]byte{0x20, 1} },
	} {
		x := *dest
		bad(&x)
		if r := a.c.Command(fake.Plain(abi.CreateAH, 12, abi.CreateAHReq{PdHandle: a.pd, Attr: x})); r.Errno != abi.EINVAL {
			t.Errorf("%s: errno %d", what, r.Errno)
		}
	}
	// A socket of datagrams of librdmacm makes one to its own device.
	a.c.queries.dev.OwnHandle = func() bool { return true }
	if r := a.c.Command(fake.Plain(abi.CreateAH, 12, abi.CreateAHReq{PdHandle: a.pd, Attr: abi.AHAttr{PortNum: 1}})); r.Errno != 0 {
		t.Errorf("to its own device: errno %d", r.Errno)
	}
}

func ptr[T any](v T) *T { return &v }

// Events that were not read are not reported, and cannot be read later. Those
// of others stay.
func TestUnreadEvents(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(15), b.newCQ(15)
	qa1, qb1 := connected(ib.RC, a, b, ca, cb)
	ca2, cb2 := a.newCQ(31), b.newCQ(31)
	qa2, qb2 := connected(ib.RC, a, b, ca2, cb2)
	for _, q := range []*appQP{qa1, qa2} { // a WRITE that is refused is an error of the peer's queue pair
		q.post(fake.SendWR{ID: 1, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 8)}, Remote: 0, RKey: 1})
	}
	ca.expect(ib.StatusRemAccessErr, 1)
	ca2.expect(ib.StatusRemAccessErr, 1)
	waitReadable(t, b, 2*abi.AsyncEventLen)
	if r := ask[abi.DestroyQPResp](b, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qb1.QpHandle}); r.EventsReported != 0 {
		t.Errorf("%d events are reported, none was read", r.EventsReported)
	}
	b.wantAsync(ib.EventQPAccessError, qb2.user)
	if r := ask[abi.DestroyQPResp](b, abi.DestroyQP, abi.DestroyQPReq{QpHandle: qb2.QpHandle}); r.EventsReported != 1 {
		t.Errorf("%d events are reported, 1 was read", r.EventsReported)
	}
}

// waitReadable waits until the file of asynchronous events has n bytes.
func waitReadable(t *testing.T, a *app, n int) {
	t.Helper()
	eventually(t, "the events do not come", func() bool {
		got, err := unix.IoctlGetInt(a.async, unix.TIOCINQ)
		a.must(err)
		return got >= n
	})
}

// A completion queue is resized with what is in it, and one that overflows
// raises an event.
func TestCompletionQueue(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(3), b.newCQ(63)
	qa, qb := connected(ib.RC, a, b, ca, cb)
	send := func(id uint64) {
		qb.recv.PostRecv(id, b.sge(0, 64))
		qa.post(fake.SendWR{ID: id, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 8)}})
		cb.expect(ib.StatusSuccess, id)
	}
	for id := range uint64(3) {
		send(id)
	}
	eventually(t, "completions", func() bool { return ca.Producer() == 3 })
	refused(a, abi.EINVAL, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: ca.handle, Cqe: 1}) // three are in it
	refused(a, abi.ENOMEM, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: ca.handle, Cqe: 1 << 19})
	refused(a, abi.EINVAL, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: ca.handle, Cqe: math.MaxUint32})
	var resp abi.ResizeCQResp
	var mi abi.MMInfo
	write(a, fake.Plain(abi.ResizeCQ, 24, abi.ResizeCQReq{CqHandle: ca.handle, Cqe: 6}), &resp, &mi)
	ca.Ring = a.mapped(mi)
	if resp.Cqe != 7 {
		t.Errorf("%d entries", resp.Cqe)
	}
	for id := range uint64(5) {
		send(3 + id)
	}
	a.wantAsync(ib.EventCQError, ca.user)
	ca.expect(ib.StatusSuccess, 0, 1, 2, 3, 4, 5, 6)
}

// To ask for any completion overrides to ask for solicited ones.
func TestReqNotify(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := start(t, d)
	q := a.newCQ(7)
	arm := &q.armed
	tell(a, abi.ReqNotifyCQ, abi.ReqNotifyCQReq{CqHandle: q.handle, SolicitedOnly: 1})
	if got := arm.Load(); got != 1 {
		t.Errorf("armed %d, want 1: for solicited", got)
	}
	tell(a, abi.ReqNotifyCQ, abi.ReqNotifyCQReq{CqHandle: q.handle})
	tell(a, abi.ReqNotifyCQ, abi.ReqNotifyCQReq{CqHandle: q.handle, SolicitedOnly: 1})
	if got := arm.Load(); got != 2 {
		t.Errorf("armed %d, want 2: for any", got)
	}
}

// A channel that the program has closed makes room for another.
func TestChannels(t *testing.T) {
	t.Parallel()
	d, _ := hosts(t)
	a := open(t, d, smallRings)
	a.c.events.channels.most = 2
	a.getContext()
	channel := func() (uint32, abi.Reply) {
		r := a.c.Command(fake.Plain(abi.CreateCompChannel, 4, abi.CreateCompChannelReq{}))
		if r.Errno != 0 {
			return 0, r
		}
		return binary.LittleEndian.Uint32(r.Resp), r
	}
	_, r1 := channel()
	_, r2 := channel()
	if _, r := channel(); r.Errno != abi.EMFILE {
		t.Errorf("a third one: errno %d", r.Errno)
	}
	ino, _ := inode(r2.Files[0].FD)
	a.must(unix.Close(r2.Files[0].FD))
	a.c.CloseEvents(ino)
	_, r3 := channel()
	for _, r := range []abi.Reply{r1, r3} {
		if r.Errno != 0 {
			t.Errorf("errno %d", r.Errno)
			continue
		}
		a.must(unix.Close(r.Files[0].FD))
	}
}

// Posting to a queue pair that cannot send yet is refused. What it has posted
// goes when the queue pair is connected.
func TestPostTooEarly(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(15), b.newCQ(15)
	qa, qb := a.newQP(options{cq: ca}), b.newQP(options{cq: cb})
	want := func(state string, errno abi.Errno) {
		t.Helper()
		if got := a.c.Post(qa.QpHandle); got != errno {
			t.Errorf("%s: errno %d, want %d", state, got, errno)
		}
		if r := a.c.Command(fake.Plain(abi.PostSend, 4, abi.PostSendReq{QpHandle: qa.QpHandle})); r.Errno != errno {
			t.Errorf("%s: errno %d, want %d", state, r.Errno, errno)
		}
	}
	want("RESET", abi.EINVAL)
	qa.init()
	qb.init()
	want("INIT", abi.EINVAL)
	qb.recv.PostRecv(7, b.sge(0, 64))
	qa.send.PostSend(fake.SendWR{ID: 1, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 8)}})
	qb.up(qa)
	qa.up(qb)
	ca.expect(ib.StatusSuccess, 1)
	cb.expect(ib.StatusSuccess, 7)
	want("RTS", 0)
	qa.toErr()
	want("ERR", 0)
	qa.reset()
	want("RESET again", abi.EINVAL)
}

// What the program has posted before it resizes a completion queue counts as in
// the queue, where it completes at once.
func TestResizeBehindPost(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	ca, cb := a.newCQ(7), b.newCQ(7)
	qa, qb := connected(ib.UD, a, b, ca, cb)
	for i := range uint64(7) {
		qa.post(fake.SendWR{ID: i, Opcode: fake.Send, Flags: fake.Signaled, SGE: []ib.SGE{a.sge(0, 8)}, DGID: db.Dev.Addr().As16(), QPN: qb.Qpn, QKey: qkey})
	}
	refused(a, abi.EINVAL, abi.ResizeCQ, abi.ResizeCQReq{CqHandle: ca.handle, Cqe: 1})
}

// A queue pair learns that its peer is this software from what knows.
func TestNativePeer(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	da.Native = func(peer netip.Addr) bool { return peer == db.Dev.Addr() }
	a, b := start(t, da), start(t, db)
	qa, qb := connected(ib.RC, a, b, a.newCQ(15), b.newCQ(15))
	for c, want := range map[*appQP]bool{qa: true, qb: false} {
		if got := c.qp.Attr().AV.Native; got != want {
			t.Errorf("native is %v, want %v", got, want)
		}
	}
}

// What the program has left out the doorbells of is posted when it polls, with
// the next command, and when it closes the file.
func TestPostLeft(t *testing.T) {
	t.Parallel()
	da, db := hosts(t)
	a, b := start(t, da), start(t, db)
	qa, _ := connected(ib.RC, a, b, a.newCQ(63), b.newCQ(63))
	leave := func() {
		t.Helper()
		for a.c.Doorbells().words[qa.QpHandle].Load() == 0 { // the peer has no receives
			qa.post(inline(0))
		}
		for range 2 {
			if !qa.send.PostSend(inline(0)) || !a.c.Doorbells().LeaveOut(qa.QpHandle) {
				t.Fatal("a doorbell was not left out")
			}
		}
	}
	posted := func() {
		t.Helper()
		s := &a.c.qps.qps.get(qa.QpHandle).queues.send
		s.mu.Lock()
		defer s.mu.Unlock()
		if n, err := s.ring.Waiting(); n != 0 || err != nil {
			t.Errorf("%d requests wait in the ring, %v", n, err)
		}
	}
	leave()
	a.c.PostLeft()
	posted()
	leave()
	ask[abi.QueryQPResp](a, abi.QueryQP, abi.QueryQPReq{QpHandle: qa.QpHandle})
	posted()
	leave()
	s := &a.c.qps.qps.get(qa.QpHandle).queues.send
	before := s.ring.Taken()
	a.must(a.c.Close())
	if n := s.ring.Taken() - before; n != 2 {
		t.Errorf("%d requests were posted before the file was closed", n)
	}
}

// The loopback interface has no speed, and other interfaces have theirs.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ifname       string
		mbps         int
		width, speed uint8
	}{{"lo", 0, 2, 32}, {"eth0", 0, 1, 1}, {"eth0", 10000, 2, 1}, {"eth0", 25000, 1, 32}} {
		if width, speed := linkRate(Rate(c.ifname, c.mbps)); width != c.width || speed != c.speed {
			t.Errorf("%s with %d Mb/s: width %d, speed %d, want %d, %d", c.ifname, c.mbps, width, speed, c.width, c.speed)
		}
	}
}
