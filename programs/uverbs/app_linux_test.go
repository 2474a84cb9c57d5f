package uverbs

import (
	"cmp"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/programs/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/programs/uverbs/uverbstest"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
)

// app is a program with its libraries: it writes commands, maps rings, and
// polls.
type app struct {
	t   testing.TB
	dev *Device
	c   *Client
	mem []byte // the mapping of the client's memory
	buf []byte // the program's memory

	async int
	pd    uint32
	mr    abi.RegMRResp
	files []int
}

// hosts returns two devices that are connected over sockets.
func hosts(t testing.TB) (a, b *Device) { return devices(t, newLink(t), newLink(t)) }

// near returns two devices that are connected inside of the process.
func near(t testing.TB) (a, b *Device) {
	la, lb := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	return devices(t, la, lb)
}

// programs starts one on each of these.
func programs(t testing.TB) (a, b *app) {
	da, db := near(t)
	return start(t, da), start(t, db)
}

func newLink(t testing.TB) *udp.Link {
	addr := netip.AddrFrom4([4]byte{127, byte(2 + rand.IntN(200)), byte(rand.IntN(256)), byte(2 + rand.IntN(200))})
	l, err := udp.Open(addr, udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func devices(t testing.TB, la, lb transport.Link) (a, b *Device) {
	a = &Device{Name: "rxe_a", Requests: new(Requests), Dev: hca.New(hca.Config{}, la), GUID: 0x0102030405060708}
	b = &Device{Name: "rxe_b", Dev: hca.New(hca.Config{}, lb)}
	t.Cleanup(func() {
		a.Dev.Close()
		b.Dev.Close()
	})
	return a, b
}

// smallRings has tests share the address space of a small machine.
const smallRings = 4 << 20

// start opens a device as a program does, with a domain and a region.
func start(t testing.TB, d *Device) *app { return startLarge(t, d, smallRings) }

func startLarge(t testing.TB, d *Device, rings int) *app {
	a := open(t, d, rings)
	a.getContext()
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	a.mr = a.register(ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.MWBind | ib.FlushGlobal)
	return a
}

// open opens a device.
func open(t testing.TB, d *Device, rings int) *app {
	// The race detector does not know mappings, as it does not know the
	// memory of programs in C.
	buf, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{t: t, dev: d, buf: buf}
	small := *d
	small.Rings = rings
	a.c, err = small.Open()
	a.must(err)
	var st unix.Stat_t
	a.must(unix.Fstat(a.c.Memory(), &st))
	a.mem, err = unix.Mmap(a.c.Memory(), 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	a.must(err)
	t.Cleanup(a.exit)
	return a
}

// exit ends the program.
func (a *app) exit() {
	a.must(a.c.Close())
	if a.mem != nil {
		a.must(unix.Munmap(a.mem))
		a.must(unix.Munmap(a.buf))
		a.mem = nil
	}
	for _, f := range a.files {
		unix.Close(f)
	}
}

func (a *app) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// write writes a command, which succeeds, and decodes the reply.
func write(a *app, b []byte, resp ...any) abi.Reply {
	a.t.Helper()
	r := a.c.Command(b)
	if r.Errno != 0 || r.N != len(b) {
		a.t.Fatalf("command %d: %v, %d of %d bytes", b[0], r.Errno, r.N, len(b))
	}
	rest := r.Resp
	for _, v := range resp {
		n, err := binary.Decode(rest, binary.LittleEndian, v)
		if err != nil {
			a.t.Fatalf("command %d: a reply of %d bytes: %v", b[0], len(r.Resp), err)
		}
		rest = rest[n:]
	}
	return r
}

// ask writes a plain command with a reply.
func ask[R any](a *app, c abi.Command, body any) R {
	a.t.Helper()
	var r R
	write(a, fake.Plain(c, binary.Size(r), body), &r)
	return r
}

// tell writes a plain command without one.
func tell(a *app, c abi.Command, body any) {
	a.t.Helper()
	write(a, fake.Plain(c, 0, body))
}

// refused fails unless a plain command fails with an error number.
func refused(a *app, want abi.Errno, c abi.Command, body any) {
	a.t.Helper()
	if r := a.c.Command(fake.Plain(c, 1024, body)); r.Errno != want || len(r.Resp) != 0 || len(r.Files) != 0 {
		a.t.Errorf("command %d of %+v: errno %d, want %d", c, body, r.Errno, want)
	}
}

// getContext opens the file of asynchronous events.
func (a *app) getContext() {
	a.t.Helper()
	r := write(a, fake.Plain(abi.GetContext, 8, abi.GetContextReq{}))
	a.async = a.keep(r)
}

// keep takes the file that came with a reply, so that reading does not block.
func (a *app) keep(r abi.Reply) int {
	a.t.Helper()
	if len(r.Files) != 1 {
		a.t.Fatalf("%d files", len(r.Files))
	}
	f := r.Files[0].FD
	a.must(unix.SetNonblock(f, true))
	a.files = append(a.files, f)
	return f
}

// readEvent waits for a record of a file of events.
func (a *app) readEvent(f int, size int) []byte {
	a.t.Helper()
	b := make([]byte, size)
	poll := []unix.PollFd{{Fd: int32(f), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 20000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			a.t.Fatalf("no event has come: %v", err)
		}
		if n, err := unix.Read(f, b); n == size && err == nil {
			return b
		}
	}
}

// wantAsync waits for an asynchronous event.
func (a *app) wantAsync(e ib.Event, element uint64) {
	a.t.Helper()
	b := a.readEvent(a.async, abi.AsyncEventLen)
	if el, k := binary.LittleEndian.Uint64(b), ib.Event(binary.LittleEndian.Uint32(b[8:])); el != element || k != e {
		a.t.Errorf("event %v of %#x, want %v of %#x", k, el, e, element)
	}
}

// register registers the whole buffer.
func (a *app) register(rights ib.Access) abi.RegMRResp {
	a.t.Helper()
	addr := memreg.AddrOf(a.buf)
	return ask[abi.RegMRResp](a, abi.RegMR, abi.RegMRReq{Start: addr, Length: uint64(len(a.buf)), HcaVa: addr, PdHandle: a.pd,
		AccessFlags: uint32(rights)})
}

func (a *app) addr(off int) uint64 { return memreg.AddrOf(a.buf) + uint64(off) }

// remote is what a peer needs of a place in the buffer.
func (a *app) remote(off int) (addr uint64, rkey uint32) { return a.addr(off), a.mr.Rkey }

func (a *app) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: a.addr(off), Length: uint32(n), LKey: ib.Key(a.mr.Lkey)}
}

// mapped returns the ring that a reply names.
func (a *app) mapped(mi abi.MMInfo) fake.Ring {
	a.t.Helper()
	if mi.Offset%uint64(os.Getpagesize()) != 0 || mi.Offset == 0 || mi.Offset+uint64(mi.Size) > uint64(len(a.mem)) {
		a.t.Fatalf("a ring at %+v", mi)
	}
	return fake.Ring{Mem: a.mem[mi.Offset:][:mi.Size]}
}

// appCQ is a completion queue as the program has it.
type appCQ struct {
	fake.Ring
	*CompQueue
	p       *app
	handle  uint32
	user    uint64
	channel int
	read    uint32 // completion events
}

// newCQ makes a completion queue, with a channel.
func (a *app) newCQ(n uint32) *appCQ {
	a.t.Helper()
	q := &appCQ{p: a, user: 0xc0000 + uint64(n)}
	var ch abi.CreateCompChannelResp
	q.channel = a.keep(write(a, fake.Plain(abi.CreateCompChannel, 4, abi.CreateCompChannelReq{}), &ch))
	var resp abi.CreateCQResp
	var mi abi.MMInfo
	write(a, fake.Plain(abi.CreateCQ, 24, abi.CreateCQReq{CQInit: abi.CQInit{UserHandle: q.user, Cqe: n, CompChannel: int32(q.channel)}}), &resp, &mi)
	if resp.Cqe < n {
		a.t.Errorf("a completion queue of %d, want at least %d", resp.Cqe, n)
	}
	q.handle, q.Ring, q.CompQueue = resp.CqHandle, a.mapped(mi), a.c.cqs.cqs.get(resp.CqHandle).core
	return q
}

// arm asks for an event.
func (q *appCQ) arm() { tell(q.p, abi.ReqNotifyCQ, abi.ReqNotifyCQReq{CqHandle: q.handle}) }

// wait takes n completions. It sleeps on the channel where there are none.
func (q *appCQ) wait(n int) []fake.WC {
	q.p.t.Helper()
	var got []fake.WC
	for {
		for len(got) < n {
			wc, ok := q.Poll()
			if !ok {
				break
			}
			got = append(got, wc)
		}
		if len(got) == n {
			return got
		}
		q.arm()
		if q.Producer() != q.Consumer() {
			continue
		}
		if b := q.p.readEvent(q.channel, abi.CompEventLen); binary.LittleEndian.Uint64(b) != q.user {
			q.p.t.Fatalf("a completion event of %x", b)
		}
		q.read++
	}
}

// expect waits for completions with these IDs and one status.
func (q *appCQ) expect(status ib.Status, ids ...uint64) []fake.WC {
	q.p.t.Helper()
	got := q.wait(len(ids))
	for i, wc := range got {
		if wc.ID != ids[i] || wc.Status != status {
			q.p.t.Fatalf("completion %d is %+v; want ID %d, %v", i, wc, ids[i], status)
		}
	}
	return got
}

// none fails if there is a completion.
func (q *appCQ) none() {
	q.p.t.Helper()
	if c, ok := q.Poll(); ok {
		q.p.t.Fatalf("a completion that is not expected: %+v", c)
	}
}

// appQP is a queue pair as the program has it.
type appQP struct {
	abi.CreateQPResp
	*Queues
	p          *app
	user       uint64
	typ        ib.QPType
	cq         *appCQ
	send, recv fake.Ring
}

// options are how a queue pair is made: by default of RC, with 15 requests of 3
// entries, and a completion queue of its own.
type options struct {
	typ              ib.QPType
	depth, sge, data uint32
	cq               *appCQ
	srq              *appSRQ
	all              uint8
}

func (a *app) newQP(o options) *appQP {
	a.t.Helper()
	if o.cq == nil {
		o.cq = a.newCQ(255)
	}
	q := &appQP{p: a, user: 0x9000 + uint64(o.cq.handle), typ: cmp.Or(o.typ, ib.RC), cq: o.cq}
	depth, sge := cmp.Or(o.depth, 15), cmp.Or(o.sge, 3)
	req := abi.QPInit{UserHandle: q.user, PdHandle: a.pd, SendCqHandle: o.cq.handle, RecvCqHandle: o.cq.handle,
		MaxSendWr: depth, MaxRecvWr: depth, MaxSendSge: sge, MaxRecvSge: sge, MaxInlineData: o.data, QpType: uint8(q.typ), SqSigAll: o.all}
	if o.srq != nil {
		req.IsSrq, req.SrqHandle = 1, o.srq.SrqHandle
	}
	var mi abi.CreateQPDriverResp
	write(a, fake.Plain(abi.CreateQP, 64, abi.CreateQPReq{QPInit: req}), &q.CreateQPResp, &mi)
	q.send, q.Queues = a.mapped(mi.SqMi), a.c.qps.qps.get(q.QpHandle).queues
	if o.srq == nil {
		q.recv = a.mapped(mi.RqMi)
	}
	return q
}

// pair makes two connected queue pairs of two programs.
func pair(t testing.TB, o options) (a, b *appQP) {
	pa, pb := programs(t)
	a, b = pa.newQP(o), pb.newQP(o)
	a.connect(b)
	b.connect(a)
	return a, b
}

// dest is the address of the program, for its peer.
func (a *app) dest() abi.QPDest {
	return abi.QPDest{Dgid: a.dev.Dev.Addr().As16(), IsGlobal: 1, PortNum: 1, HopLimit: 64}
}

// to takes the queue pair to a state.
func (q *appQP) to(s ib.State) {
	q.p.t.Helper()
	tell(q.p, abi.ModifyQP, abi.ModifyQPReq{QpHandle: q.QpHandle, AttrMask: uint32(ib.AttrState), QPValues: abi.QPValues{QpState: uint8(s)}})
}

func (q *appQP) reset() { q.to(ib.StateReset) }
func (q *appQP) toErr() { q.to(ib.StateErr) }

const qkey = 0x1234

// steps are what takes a queue pair to INIT, RTR and RTS.
func (q *appQP) steps(peer *appQP) []abi.ModifyQPReq {
	rights := ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.FlushGlobal
	values := []abi.QPValues{
		{QpState: uint8(ib.StateInit), PortNum: 1, Qkey: qkey, QpAccessFlags: uint32(rights)},
		{QpState: uint8(ib.StateRTR), PathMtu: 3, RqPsn: 100, MaxDestRdAtomic: 16, MinRnrTimer: 1},
		{QpState: uint8(ib.StateRTS), SqPsn: 100, Timeout: 14, RetryCnt: 7, RnrRetry: 7, MaxRdAtomic: 16},
	}
	masks := [3]ib.AttrMask{ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort, ib.AttrState, ib.AttrState | ib.AttrSQPSN}
	list := make([]abi.ModifyQPReq, len(values))
	if q.typ == ib.UD {
		masks[0] |= ib.AttrQKey
	} else {
		list[1].Dest, values[1].DestQpNum = peer.p.dest(), peer.Qpn
		masks[0] |= ib.AttrAccess
		masks[1] |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	}
	if q.typ == ib.RC {
		masks[1] |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		masks[2] |= ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxRdAtomic
	}
	for i, mask := range masks {
		list[i].QPValues, list[i].AttrMask, list[i].QpHandle = values[i], uint32(mask), q.QpHandle
	}
	return list
}

// init takes a queue pair to INIT.
func (q *appQP) init() {
	q.p.t.Helper()
	tell(q.p, abi.ModifyQP, q.steps(q)[0])
}

// up takes a queue pair from INIT to RTS.
func (q *appQP) up(peer *appQP) {
	q.p.t.Helper()
	for _, s := range q.steps(peer)[1:] {
		tell(q.p, abi.ModifyQP, s)
	}
}

// connect takes a queue pair from RESET to RTS.
func (q *appQP) connect(peer *appQP) {
	q.p.t.Helper()
	q.init()
	q.up(peer)
}

// connected returns two queue pairs that are.
func connected(typ ib.QPType, a, b *app, ca, cb *appCQ) (qa, qb *appQP) {
	qa, qb = a.newQP(options{typ: typ, cq: ca}), b.newQP(options{typ: typ, cq: cb})
	qa.connect(qb)
	qb.connect(qa)
	return qa, qb
}

// post posts send requests.
func (q *appQP) post(wrs ...fake.SendWR) {
	q.p.t.Helper()
	for _, w := range wrs {
		if !q.send.PostSend(w) {
			q.p.t.Fatalf("no room for request %d", w.ID)
		}
	}
	if errno := q.p.c.Post(q.QpHandle); errno != 0 {
		q.p.t.Fatalf("post: errno %d", errno)
	}
}

// receive posts receives of n bytes at places of the buffer of n bytes each.
func (q *appQP) receive(n int, ids ...uint64) {
	q.p.t.Helper()
	for _, id := range ids {
		if !q.recv.PostRecv(id, q.p.sge(int(id)*n, n)) {
			q.p.t.Fatalf("no room for receive %d", id)
		}
	}
}

// write is a WRITE of the first n bytes of the buffer to a place of the peer's.
func (q *appQP) write(id uint64, n int, peer *app, at int) fake.SendWR {
	return fake.SendWR{ID: id, Opcode: fake.Write, Flags: fake.Signaled, SGE: []ib.SGE{q.p.sge(0, n)}, Remote: peer.addr(at), RKey: peer.mr.Rkey}
}

// inline is a SEND of one byte.
func inline(id uint64) fake.SendWR {
	return fake.SendWR{ID: id, Opcode: fake.Send, Flags: fake.Signaled | fake.Inline, Data: []byte{byte(id)}}
}

// appSRQ is a shared receive queue as the program has it.
type appSRQ struct {
	abi.CreateSRQResp
	fake.Ring
	*SharedRecvQueue
	p    *app
	user uint64
}

func (a *app) newSRQ(wr, limit uint32) *appSRQ {
	a.t.Helper()
	s := &appSRQ{p: a, user: 0x5000 + uint64(wr)}
	var drv abi.CreateSRQDriverResp
	write(a, fake.Plain(abi.CreateSRQ, 40, abi.CreateSRQReq{UserHandle: s.user, SRQInit: abi.SRQInit{PdHandle: a.pd, MaxWr: wr, MaxSge: 1, SrqLimit: limit}}),
		&s.CreateSRQResp, &drv)
	s.Ring, s.SharedRecvQueue = a.mapped(drv.Mi), a.c.srqs.srqs.get(s.SrqHandle).core
	return s
}

// eventually waits for something that takes a moment.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}
