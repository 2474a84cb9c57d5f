//go:build linux

package ucma_test

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/ucma"
	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// host is a device of a test, with what a queue pair needs.
type host struct {
	t   testing.TB
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
}

// network makes devices on a network inside the process.
func network(t testing.TB, addrs ...string) []*host {
	t.Helper()
	sw := fabric.NewSwitch(fabric.Config{})
	var hosts []*host
	for _, a := range addrs {
		port, err := sw.Attach(netip.MustParseAddr(a))
		must(t, err)
		h := &host{t: t}
		h.dev, err = verbs.OpenLink(port, verbs.Config{})
		must(t, err)
		t.Cleanup(func() { h.dev.Close() })
		h.pd, err = h.dev.AllocPD()
		must(t, err)
		h.cq, err = h.dev.CreateCQ(64)
		must(t, err)
		h.mr, err = h.pd.RegisterMemory(make([]byte, 4096), verbs.LocalWrite)
		must(t, err)
		hosts = append(hosts, h)
	}
	return hosts
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// qp makes a queue pair in RESET, as a program does through verbs.
func (h *host) qp(typ verbs.QPType) *verbs.QP {
	h.t.Helper()
	q, err := h.pd.CreateQP(verbs.QPConfig{Type: typ, SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 8, MaxRecvWR: 8})
	must(h.t, err)
	return q
}

// program speaks to a client as librdmacm does.
type program struct {
	t     testing.TB
	c     *ucma.Client
	files []*ucma.Client // by file descriptor
	value []byte         // what lies in its memory, anywhere
	low   atomic.Bool    // it may have no ports below 1024
}

// start starts a program that sees the devices of some hosts.
func start(t testing.TB, hosts ...*host) *program {
	t.Helper()
	p := &program{t: t}
	p.c = p.open(hosts...)
	return p
}

// open opens the file, once more.
func (p *program) open(hosts ...*host) *ucma.Client {
	p.t.Helper()
	c, err := ucma.Open(ucma.Program{
		LowPorts: func() bool { return !p.low.Load() },
		Read: func(_ uint64, b []byte) error {
			copy(b, p.value)
			return nil
		},
		File: func(fd int) *ucma.Client {
			if fd < 0 || fd >= len(p.files) {
				return nil
			}
			return p.files[fd]
		},
	}, func() []ucma.Device {
		var devs []ucma.Device
		for i, h := range hosts {
			devs = append(devs, ucma.Device{Dev: h.dev, Index: i + 5})
		}
		return devs
	})
	must(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	p.files = append(p.files, c)
	return c
}

// words is a part of a command.
func u16(v uint16) []byte { return le.AppendUint16(nil, v) }
func u32(v uint32) []byte { return le.AppendUint32(nil, v) }
func u64(v uint64) []byte { return le.AppendUint64(nil, v) }

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func pad(b []byte, n int) []byte { return append(b, make([]byte, n-len(b))...) }

// response stands for the pointer to where the response goes.
var response = u64(0x1000)

// raw writes a command.
func raw(c *ucma.Client, n abi.Number, out int, body []byte) uabi.Reply {
	return c.Command(join(u32(uint32(n)), u16(uint16(len(body))), u16(uint16(out)), body))
}

// do writes a command that must work.
func (p *program) do(n abi.Number, out int, parts ...[]byte) []byte {
	p.t.Helper()
	r := raw(p.c, n, out, join(parts...))
	if r.Errno != 0 {
		p.t.Fatalf("command %d: %v", n, r.Errno)
	}
	if want := 8 + len(join(parts...)); r.N != want {
		p.t.Errorf("command %d: write returned %d; want %d", n, r.N, want)
	}
	return r.Resp
}

// fails writes a command that must fail.
func (p *program) fails(why string, want uabi.Errno, n abi.Number, out int, parts ...[]byte) {
	p.t.Helper()
	if r := raw(p.c, n, out, join(parts...)); r.Errno != want {
		p.t.Errorf("%s: %v; want %v", why, r.Errno, want)
	}
}

func sockaddr(a netip.AddrPort) []byte {
	if a.Addr().Is4() {
		ip := a.Addr().As4()
		return join(u16(abi.AFInet), be.AppendUint16(nil, a.Port()), ip[:], make([]byte, 8))
	}
	ip := a.Addr().As16()
	return join(u16(abi.AFInet6), be.AppendUint16(nil, a.Port()), u32(0), ip[:], u32(0))
}

func in6(a netip.AddrPort) []byte { return pad(sockaddr(a), 28) }

func at(h *host, port uint16) netip.AddrPort { return netip.AddrPortFrom(h.dev.Addr(), port) }

func (p *program) create(ps cm.PortSpace, uid uint64) uint32 {
	p.t.Helper()
	return le.Uint32(p.do(abi.CreateID, 4, u64(uid), response, u16(uint16(ps)), make([]byte, 6)))
}

func (p *program) bindCmd(id uint32, a netip.AddrPort) []byte { return join(response, in6(a), u32(id)) }

// listenOn makes a listening ID and returns its number and its port.
func (p *program) listenOn(ps cm.PortSpace, uid uint64, a netip.AddrPort, backlog uint32) (id uint32, port uint16) {
	p.t.Helper()
	id = p.create(ps, uid)
	p.do(abi.BindIP, 0, p.bindCmd(id, a))
	p.do(abi.Listen, 0, u32(id), u32(backlog))
	return id, be.Uint16(p.do(abi.QueryRoute, 208, response, u32(id), u32(0))[138:])
}

// resolved makes an ID that can connect.
func (p *program) resolved(ps cm.PortSpace, uid uint64, to netip.AddrPort) uint32 {
	p.t.Helper()
	id := p.create(ps, uid)
	p.do(abi.ResolveIP, 0, make([]byte, 28), in6(to), u32(id), u32(2000))
	p.want(cm.EventAddrResolved, uid)
	p.do(abi.ResolveRoute, 0, u32(id), u32(2000))
	p.want(cm.EventRouteResolved, uid)
	return id
}

func param(qpn verbs.QPN, private string) []byte {
	return join(u32(uint32(qpn)), u32(0), pad([]byte(private), 256), []byte{byte(len(private)), 0, 3, 4, 1, 6, 5, 1})
}

func (p *program) connect(id uint32, qpn verbs.QPN, private string) {
	p.t.Helper()
	p.do(abi.Connect, 0, param(qpn, private), u32(id), u32(0), u64(0))
}

func (p *program) accept(id uint32, uid uint64, qpn verbs.QPN, private string) {
	p.t.Helper()
	p.do(abi.Accept, 0, u64(uid), param(qpn, private), u32(id), u32(0), u64(0))
}

// establish is the ACCEPT of the side that has asked.
func (p *program) establish(id uint32) {
	p.t.Helper()
	p.do(abi.Accept, 0, u64(0), make([]byte, 272), u32(id), u32(0), u64(0))
}

func (p *program) destroy(id uint32) (reported uint32) {
	p.t.Helper()
	return le.Uint32(p.do(abi.DestroyID, 4, response, u32(id), u32(0)))
}

// event is what GET_EVENT gave.
type event []byte

func (e event) uid() uint64         { return le.Uint64(e) }
func (e event) id() uint32          { return le.Uint32(e[8:]) }
func (e event) kind() cm.EventType  { return cm.EventType(e[12]) }
func (e event) status() int32       { return int32(le.Uint32(e[16:])) }
func (e event) param() []byte       { return e[20:324] }
func (e event) qpn() verbs.QPN      { return verbs.QPN(le.Uint32(e[20:])) }
func (e event) connPrivate() []byte { return e.param()[8:][:e.param()[264]] }
func (e event) udPrivate() []byte   { return e.param()[40:][:e.param()[296]] }

// readable reports whether the file of a client is readable within a time.
func readable(t testing.TB, c *ucma.Client, ms int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(c.Ready()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, ms)
	for err == unix.EINTR {
		n, err = unix.Poll(fds, ms)
	}
	must(t, err)
	return n == 1
}

// next waits for the next event.
func (p *program) next() event {
	p.t.Helper()
	if !readable(p.t, p.c, 600_000) {
		p.t.Fatal("no event comes")
	}
	return p.do(abi.GetEvent, 336, response)
}

// want takes the next event, which must be of a type, and of an ID of a uid.
func (p *program) want(kind cm.EventType, uid uint64) event {
	p.t.Helper()
	e := p.next()
	if e.kind() != kind || e.uid() != uid {
		p.t.Fatalf("event %v of %d, status %d; want %v of %d", e.kind(), e.uid(), e.status(), kind, uid)
	}
	return e
}

// idle checks that there is no event, and that the file says so.
func (p *program) idle() {
	p.t.Helper()
	p.fails("an event that nobody expects", uabi.EAGAIN, abi.GetEvent, 336, response)
	if readable(p.t, p.c, 0) {
		p.t.Error("the file is readable without an event")
	}
}

// modify takes a queue pair to a state with the attributes that the connection
// manager gives.
func (p *program) modify(id uint32, q *verbs.QP, states ...verbs.State) {
	p.t.Helper()
	for _, s := range states {
		b := p.do(abi.InitQPAttr, 144, response, u32(id), u32(uint32(s)))
		a, mask := attrOf(b)
		if err := q.Modify(a, mask); err != nil {
			p.t.Fatalf("to %v: %v", s, err)
		}
	}
}

func attrOf(b []byte) (*verbs.Attr, verbs.AttrMask) {
	a := &verbs.Attr{State: verbs.State(b[4]), PathMTU: verbs.MTU(b[12]), QKey: le.Uint32(b[20:]),
		RQPSN: verbs.PSN(le.Uint32(b[24:])), SQPSN: verbs.PSN(le.Uint32(b[28:])), DestQPN: verbs.QPN(le.Uint32(b[32:])),
		Access: verbs.Access(le.Uint32(b[36:])), PKeyIndex: le.Uint16(b[124:]),
		MaxRdAtomic: b[130], MaxDestRdAtomic: b[131], MinRNRTimer: b[132], Port: b[133], Timeout: b[134], RetryCount: b[135], RNRRetry: b[136]}
	a.AV = verbs.AddressVector{DGID: netip.AddrFrom16([16]byte(b[40:56])).Unmap(), FlowLabel: le.Uint32(b[56:]),
		SGIDIndex: b[60], HopLimit: b[61], TrafficClass: b[62]}
	return a, verbs.AttrMask(le.Uint32(b))
}

// pair makes two programs on two devices.
func pair(t testing.TB) (a, b *host, client, server *program) {
	t.Helper()
	h := network(t, "192.0.2.1", "192.0.2.2")
	return h[0], h[1], start(t, h[0]), start(t, h[1])
}
