package uverbs

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/hca"
	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/memreg"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/udp"
	"github.com/gosoftroce/rocev2/uverbs/abi"
	fake "github.com/gosoftroce/rocev2/uverbs/uverbstest"
)

// app is a program with its libraries: it writes commands, maps rings, and
// polls.
type app struct {
	t   testing.TB
	dev *Device
	c   *Client
	mem []byte // the mapping of the client's memory
	buf []byte // the program's memory

	async *os.File
	pd    uint32
	mr    abi.RegMRResp
	files []*os.File
}

// localSpace is the memory of a program that is this process: one buffer.
type localSpace struct{ buf []byte }

func (s localSpace) Region(addr, n uint64, write bool) (memreg.Memory, error) {
	base := memreg.AddrOf(s.buf)
	if addr < base || addr-base > uint64(len(s.buf)) || n > uint64(len(s.buf))-(addr-base) {
		return nil, abi.EFAULT
	}
	return memreg.Local(s.buf[addr-base:][:n]), nil
}

// hosts returns two devices that are connected over sockets: they serve
// doorbells beside the link.
func hosts(t testing.TB) (a, b *Device) { return devices(t, newLink(t), newLink(t)) }

func newLink(t testing.TB) *udp.Link {
	addr := netip.AddrFrom4([4]byte{127, byte(2 + rand.IntN(200)), byte(rand.IntN(256)), byte(2 + rand.IntN(200))})
	l, err := udp.Open(addr, udp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// simulated returns two devices that are connected by a link that does not wait
// for doorbells: each client has a goroutine for them.
func simulated(t testing.TB) (a, b *Device) {
	la, lb := fabric.Pair(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"))
	return devices(t, la, lb)
}

func devices(t testing.TB, la, lb transport.Link) (a, b *Device) {
	a = &Device{Name: "rxe_a", Dev: hca.New(hca.Config{}, la), GUID: 0x0102030405060708}
	b = &Device{Name: "rxe_b", Index: 1, Dev: hca.New(hca.Config{}, lb)}
	t.Cleanup(func() {
		a.Dev.Close()
		b.Dev.Close()
	})
	return a, b
}

// smallQuota has tests share the address space of a small machine.
var smallQuota = Quota{RingBytes: 4 << 20}

// start opens a device as a program does, with a domain and a region.
func start(t testing.TB, d *Device) *app {
	return startAs(t, d, os.Geteuid())
}

// startAs is start as a program of a user.
func startAs(t testing.TB, d *Device, uid int) *app {
	a := openAs(t, d, smallQuota, uid)
	a.getContext()
	a.pd = ask[abi.AllocPDResp](a, abi.AllocPD, abi.AllocPDReq{}).PdHandle
	a.mr = a.register(ib.LocalWrite | ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic | ib.MWBind)
	return a
}

// open opens a device.
func open(t testing.TB, d *Device, q Quota) *app { return openAs(t, d, q, os.Geteuid()) }

// openAs opens a device as a program of a user does.
func openAs(t testing.TB, d *Device, q Quota, uid int) *app {
	// The race detector does not know mappings, as it does not know the
	// memory of other processes.
	buf, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	a := &app{t: t, dev: d, buf: buf}
	a.c, err = d.Open(Peer{PID: os.Getpid(), UID: uint32(uid), Memory: localSpace{a.buf}}, q)
	a.must(err)
	st, err := a.c.Memfd().Stat()
	a.must(err)
	a.mem, err = unix.Mmap(int(a.c.Memfd().Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
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
		f.Close()
	}
}

func (a *app) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// plain returns a plain command.
func plain(c abi.Command, out int, body ...any) []byte {
	b := make([]byte, 8)
	for _, v := range body {
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	binary.LittleEndian.PutUint32(b, uint32(c))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(b)/4))
	binary.LittleEndian.PutUint16(b[6:], uint16(out/4))
	return b
}

// extended returns an extended command with room for out and driver bytes.
func extended(c abi.Command, out, driver int, body any) []byte {
	b, _ := binary.Append(make([]byte, 24), binary.LittleEndian, body)
	binary.LittleEndian.PutUint32(b, uint32(c)|1<<31)
	binary.LittleEndian.PutUint16(b[4:], uint16((len(b)-24)/8))
	binary.LittleEndian.PutUint16(b[6:], uint16(out/8))
	if out+driver > 0 {
		binary.LittleEndian.PutUint64(b[8:], 0x1000)
	}
	binary.LittleEndian.PutUint16(b[18:], uint16(driver/8))
	return b
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
	write(a, plain(c, binary.Size(r), body), &r)
	return r
}

// tell writes a plain command without one.
func tell(a *app, c abi.Command, body any) {
	a.t.Helper()
	write(a, plain(c, 0, body))
}

// refused fails unless a plain command fails with an error number.
func refused(a *app, want abi.Errno, c abi.Command, body any) {
	a.t.Helper()
	if r := a.c.Command(plain(c, 1024, body)); r.Errno != want || len(r.Resp) != 0 || len(r.Files) != 0 {
		a.t.Errorf("command %d of %+v: errno %d, want %d", c, body, r.Errno, want)
	}
}

// getContext opens the file of asynchronous events.
func (a *app) getContext() {
	a.t.Helper()
	r := write(a, plain(abi.GetContext, 8, abi.GetContextReq{}))
	a.async = a.keep(r)
}

// keep takes the file that came with a reply, so that reading does not block.
func (a *app) keep(r abi.Reply) *os.File {
	a.t.Helper()
	if len(r.Files) != 1 {
		a.t.Fatalf("%d files", len(r.Files))
	}
	f := r.Files[0].File.(*os.File)
	a.must(unix.SetNonblock(int(f.Fd()), true))
	a.files = append(a.files, f)
	return f
}

// readEvent waits for a record of a file of events.
func (a *app) readEvent(f *os.File, size int) []byte {
	a.t.Helper()
	b := make([]byte, size)
	poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 20000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			a.t.Fatalf("no event has come: %v", err)
		}
		if n, err := unix.Read(int(f.Fd()), b); n == size && err == nil {
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

func (a *app) sge(off, n int) ib.SGE {
	return ib.SGE{Addr: a.addr(off), Length: uint32(n), LKey: ib.Key(a.mr.Lkey)}
}

// ring returns the ring that a reply names.
func (a *app) ring(mi abi.MMInfo) fake.Ring {
	a.t.Helper()
	if mi.Offset%uint64(os.Getpagesize()) != 0 || mi.Offset < areaLen || mi.Offset+uint64(mi.Size) > uint64(len(a.mem)) {
		a.t.Fatalf("a ring at %+v", mi)
	}
	return fake.Ring{Mem: a.mem[mi.Offset:][:mi.Size]}
}

// appCQ is a completion queue as the program has it.
type appCQ struct {
	fake.Ring
	a       *app
	handle  uint32
	user    uint64
	channel *os.File
	read    uint32 // completion events
}

// newCQ makes a completion queue, with a channel.
func (a *app) newCQ(n uint32) *appCQ {
	a.t.Helper()
	q := &appCQ{a: a, user: 0xc0000 + uint64(n)}
	var ch abi.CreateCompChannelResp
	q.channel = a.keep(write(a, plain(abi.CreateCompChannel, 4, abi.CreateCompChannelReq{}), &ch))
	var resp abi.CreateCQResp
	var mi abi.MMInfo
	write(a, plain(abi.CreateCQ, 24, abi.CreateCQReq{UserHandle: q.user, Cqe: n, CompChannel: int32(ch.Fd)}), &resp, &mi)
	if resp.Cqe < n {
		a.t.Errorf("a completion queue of %d, want at least %d", resp.Cqe, n)
	}
	q.handle, q.Ring = resp.CqHandle, a.ring(mi)
	return q
}

// arm asks for an event as the preloaded library does.
func (q *appCQ) arm() {
	(*bellArea)(unsafe.Pointer(&q.a.mem[0])).arm[q.handle].Store(2)
}

// wait takes n completions. It sleeps on the channel where there are none.
func (q *appCQ) wait(n int) []fake.WC {
	q.a.t.Helper()
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
		if b := q.a.readEvent(q.channel, abi.CompEventLen); binary.LittleEndian.Uint64(b) != q.user {
			q.a.t.Fatalf("a completion event of %x", b)
		}
		q.read++
	}
}

// expect waits for completions with these IDs and one status.
func (q *appCQ) expect(status ib.Status, ids ...uint64) []fake.WC {
	q.a.t.Helper()
	got := q.wait(len(ids))
	for i, wc := range got {
		if wc.ID != ids[i] || wc.Status != status {
			q.a.t.Fatalf("completion %d is %+v; want ID %d, %v", i, wc, ids[i], status)
		}
	}
	return got
}

// appQP is a queue pair as the program has it.
type appQP struct {
	abi.CreateQPResp
	a      *app
	user   uint64
	sq, rq fake.Ring
}

// newQP makes a queue pair. srq may be nil.
func (a *app) newQP(typ ib.QPType, cq *appCQ, srq *appSRQ) *appQP {
	a.t.Helper()
	q := &appQP{a: a, user: 0x9000 + uint64(cq.handle)}
	req := abi.CreateQPReq{UserHandle: q.user, PdHandle: a.pd, SendCqHandle: cq.handle, RecvCqHandle: cq.handle,
		MaxSendWr: 15, MaxRecvWr: 15, MaxSendSge: 2, MaxRecvSge: 2, MaxInlineData: 64, QpType: uint8(typ)}
	if srq != nil {
		req.IsSrq, req.SrqHandle = 1, srq.SrqHandle
	}
	var mi abi.CreateQPDriverResp
	write(a, plain(abi.CreateQP, 64, req), &q.CreateQPResp, &mi)
	q.sq = a.ring(mi.SqMi)
	if srq == nil {
		q.rq = a.ring(mi.RqMi)
	}
	return q
}

// dest is the address of the program, for its peer.
func (a *app) dest() abi.QPDest {
	return abi.QPDest{Dgid: a.dev.Dev.Addr().As16(), IsGlobal: 1, PortNum: 1, HopLimit: 64}
}

// modify changes the queue pair.
func (q *appQP) modify(mask ib.AttrMask, req abi.ModifyQPReq) {
	q.a.t.Helper()
	req.QpHandle, req.AttrMask = q.QpHandle, uint32(mask)
	tell(q.a, abi.ModifyQP, req)
}

const qkey = 0x1234

// toInit takes a queue pair to INIT.
func (q *appQP) toInit(typ ib.QPType) {
	q.a.t.Helper()
	mask, last := ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort, ib.AttrAccess
	if typ == ib.UD {
		last = ib.AttrQKey
	}
	q.modify(mask|last, abi.ModifyQPReq{QpState: uint8(ib.StateInit), PortNum: 1, Qkey: qkey,
		QpAccessFlags: uint32(ib.RemoteWrite | ib.RemoteRead | ib.RemoteAtomic)})
}

// connect takes a queue pair from INIT to RTS.
func (q *appQP) connect(typ ib.QPType, peer *appQP) {
	q.a.t.Helper()
	rtr, rts := ib.AttrState, ib.AttrState|ib.AttrSQPSN
	if typ != ib.UD {
		rtr |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	}
	if typ == ib.RC {
		rtr |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		rts |= ib.AttrTimeout | ib.AttrRetryCount | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
	}
	req := abi.ModifyQPReq{QpState: uint8(ib.StateRTR), PathMtu: 3, DestQpNum: peer.Qpn, RqPsn: 100, MaxDestRdAtomic: 4, MinRnrTimer: 1,
		Dest: peer.a.dest()}
	q.modify(rtr, req)
	q.modify(rts, abi.ModifyQPReq{QpState: uint8(ib.StateRTS), SqPsn: 100, Timeout: 14, RetryCnt: 7, RnrRetry: 7, MaxRdAtomic: 4})
}

// connected returns two queue pairs that are.
func connected(typ ib.QPType, a, b *app, ca, cb *appCQ) (qa, qb *appQP) {
	qa, qb = a.newQP(typ, ca, nil), b.newQP(typ, cb, nil)
	qa.toInit(typ)
	qb.toInit(typ)
	qa.connect(typ, qb)
	qb.connect(typ, qa)
	return qa, qb
}

// post posts a send request, and rings as the preloaded library does.
func (q *appQP) post(w fake.SendWR) {
	q.a.t.Helper()
	if !q.sq.PostSend(w) {
		q.a.t.Fatal("the send queue is full")
	}
	q.a.ringBell(q.QpHandle)
}

func (a *app) ringBell(h uint32) {
	area := (*bellArea)(unsafe.Pointer(&a.mem[0]))
	area.bells[h/64].Or(1 << (h % 64))
	area.summary[h/64/64].Or(1 << (h / 64 % 64))
	if area.sleeping.CompareAndSwap(1, 0) {
		_, err := unix.Write(int(a.c.Bell().Fd()), []byte{1, 0, 0, 0, 0, 0, 0, 0})
		a.must(err)
	}
}

// appSRQ is a shared receive queue as the program has it.
type appSRQ struct {
	abi.CreateSRQResp
	fake.Ring
	user uint64
}

func (a *app) newSRQ(wr, limit uint32) *appSRQ {
	a.t.Helper()
	s := &appSRQ{user: 0x5000 + uint64(wr)}
	var drv abi.CreateSRQDriverResp
	write(a, plain(abi.CreateSRQ, 40, abi.CreateSRQReq{UserHandle: s.user, PdHandle: a.pd, MaxWr: wr, MaxSge: 1, SrqLimit: limit}),
		&s.CreateSRQResp, &drv)
	s.Ring = a.ring(drv.Mi)
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
