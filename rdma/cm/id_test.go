package cm_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// want takes the next event, which must be of a type.
func (h *host) want(ch *cm.EventChannel, typ cm.EventType) *cm.Event {
	h.t.Helper()
	e, err := ch.Get(h.context())
	must(h.t, err)
	if e.Type != typ {
		h.t.Fatalf("event %v; want %v", e, typ)
	}
	return e
}

func (h *host) channel() *cm.EventChannel {
	ch := cm.NewEventChannel(cm.WithDevices(h.dev))
	h.t.Cleanup(func() { ch.Close() })
	return ch
}

func (h *host) id(ch *cm.EventChannel, space cm.PortSpace) *cm.ID {
	h.t.Helper()
	id, err := ch.CreateID(space, "mine")
	must(h.t, err)
	return id
}

// listenID makes a listening ID.
func (h *host) listenID(ch *cm.EventChannel, space cm.PortSpace) *cm.ID {
	h.t.Helper()
	id := h.id(ch, space)
	must(h.t, id.BindAddr(netip.AddrPortFrom(h.dev.Addr(), 0)))
	must(h.t, id.Listen(0))
	return id
}

// resolved makes an ID that can connect.
func (h *host) resolved(ch *cm.EventChannel, space cm.PortSpace, peer netip.AddrPort) *cm.ID {
	h.t.Helper()
	id := h.id(ch, space)
	must(h.t, id.ResolveAddr(netip.AddrPort{}, peer, 0))
	h.want(ch, cm.EventAddrResolved)
	must(h.t, id.ResolveRoute(0))
	h.want(ch, cm.EventRouteResolved)
	return id
}

func (h *host) createQP(id *cm.ID) *verbs.QP {
	h.t.Helper()
	q, err := id.CreateQP(h.pd, verbs.QPConfig{SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: 16, MaxRecvWR: 16})
	must(h.t, err)
	for i := range 8 {
		must(h.t, q.PostRecv(verbs.RecvWR{ID: uint64(i), SGList: []verbs.SGE{h.mr.Slice(1<<15+i<<10, 1<<10)}}))
	}
	return q
}

// The life of a connection in the calls and events of librdmacm.
func TestID(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	sch, cch := server.channel(), client.channel()
	lid := server.listenID(sch, cm.TCP)
	cid := client.resolved(cch, cm.TCP, lid.LocalAddr())
	cq := client.createQP(cid)
	must(t, cid.Connect(&cm.ConnParam{PrivateData: []byte("hello"), ResponderResources: 2, InitiatorDepth: 3, RetryCount: 7, RNRRetryCount: 7}))

	e := server.want(sch, cm.EventConnectRequest)
	if e.Listener != lid || e.Conn.ResponderResources != 3 || e.Conn.InitiatorDepth != 2 || e.Conn.QPN != cq.QPN() {
		t.Errorf("the request: %+v", e)
	}
	wantBytes(t, "private data of the request", e.Conn.PrivateData, zeros("hello", 56))
	sid := e.ID
	sq := server.createQP(sid)
	must(t, sid.Accept(nil))
	e = client.want(cch, cm.EventEstablished)
	if e.ID != cid || e.Conn.QPN != sq.QPN() {
		t.Errorf("established: %+v", e)
	}
	server.want(sch, cm.EventEstablished)
	if sid.PeerAddr() != cid.LocalAddr() || sid.LocalAddr() != cid.PeerAddr() || sid.DstPort() != cid.SrcPort() || sid.SrcPort() != lid.SrcPort() {
		t.Errorf("addresses: %v %v, %v %v", sid.LocalAddr(), sid.PeerAddr(), cid.LocalAddr(), cid.PeerAddr())
	}
	client.send(cq, "ping")
	if m := server.message(); m != "ping" {
		t.Errorf("the server got %q", m)
	}

	must(t, cid.Disconnect())
	server.want(sch, cm.EventDisconnected)
	if sq.State() != verbs.StateRTS {
		t.Errorf("before the program has reacted, the queue pair is in %v", sq.State())
	}
	must(t, sid.Disconnect())
	client.want(cch, cm.EventDisconnected)
	client.want(cch, cm.EventTimewaitExit)
	server.want(sch, cm.EventTimewaitExit)
	for _, q := range []*verbs.QP{cq, sq} {
		if q.State() != verbs.StateErr {
			t.Errorf("at the end a queue pair is in %v", q.State())
		}
	}
	must(t, sid.Close())
	must(t, cid.Close())
}

// A program that makes its queue pairs itself connects them by InitQPAttr.
func TestIDForeignQP(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	sch, cch := server.channel(), client.channel()
	lid := server.listenID(sch, cm.TCP)
	cid := client.resolved(cch, cm.TCP, lid.LocalAddr())
	cq, sq := client.qp(verbs.RC), server.qp(verbs.RC)
	to := func(id *cm.ID, q *verbs.QP) {
		t.Helper()
		for _, s := range []verbs.State{verbs.StateRTR, verbs.StateRTS} {
			a, mask, err := id.InitQPAttr(s)
			must(t, err)
			must(t, q.Modify(a, mask))
		}
	}
	must(t, cid.Connect(&cm.ConnParam{QPN: cq.QPN(), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}))
	sid := server.want(sch, cm.EventConnectRequest).ID
	to(sid, sq)
	must(t, sid.Accept(&cm.ConnParam{QPN: sq.QPN(), ResponderResources: 1, InitiatorDepth: 1, RNRRetryCount: 7, PrivateData: []byte("yes")}))
	e := client.want(cch, cm.EventConnectResponse)
	wantBytes(t, "private data of the response", e.Conn.PrivateData, zeros("yes", 196))
	to(cid, cq)
	must(t, cid.Establish())
	server.want(sch, cm.EventEstablished)
	server.send(sq, "pong")
	if m := client.message(); m != "pong" {
		t.Errorf("the client got %q", m)
	}
}

// Rejections reach the other side with their words.
func TestIDReject(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	sch, cch := server.channel(), client.channel()
	lid := server.listenID(sch, cm.TCP)
	cid := client.resolved(cch, cm.TCP, lid.LocalAddr())
	client.createQP(cid)
	must(t, cid.Connect(nil))
	must(t, server.want(sch, cm.EventConnectRequest).ID.Reject([]byte("no")))
	e := client.want(cch, cm.EventRejected)
	if e.Status != int(cm.ReasonConsumer) {
		t.Errorf("status %d", e.Status)
	}
	wantRejected(t, "the event", e.Err(), cm.ReasonConsumer)
	wantBytes(t, "private data", e.Conn.PrivateData, zeros("no", 148))

	must(t, lid.Close())
	cid = client.resolved(cch, cm.TCP, lid.LocalAddr())
	client.createQP(cid)
	must(t, cid.Connect(nil))
	if e := client.want(cch, cm.EventRejected); e.Status != int(cm.ReasonInvalidService) {
		t.Errorf("nothing listens: %v", e)
	}
	// The active side rejects what the peer answers.
	lid = server.listenID(sch, cm.TCP)
	cid = client.resolved(cch, cm.TCP, lid.LocalAddr())
	must(t, cid.Connect(&cm.ConnParam{QPN: client.qp(verbs.RC).QPN()}))
	sid := server.want(sch, cm.EventConnectRequest).ID
	server.createQP(sid)
	must(t, sid.Accept(nil))
	client.want(cch, cm.EventConnectResponse)
	must(t, cid.Reject([]byte("changed my mind")))
	e = server.want(sch, cm.EventRejected)
	wantBytes(t, "private data", e.Conn.PrivateData, zeros("changed my mind", 148))
}

// Datagrams by SIDR, and a group.
func TestIDDatagrams(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	sch, cch := server.channel(), client.channel()
	lid := server.listenID(sch, cm.UDP)
	cid := client.resolved(cch, cm.UDP, lid.LocalAddr())
	cq := client.createQP(cid)
	must(t, cid.Connect(&cm.ConnParam{PrivateData: []byte("where")}))
	e := server.want(sch, cm.EventConnectRequest)
	wantBytes(t, "private data of the request", e.UD.PrivateData, zeros("where", 180))
	sid := e.ID
	sq := server.createQP(sid)
	must(t, sid.Accept(nil))
	e = client.want(cch, cm.EventEstablished)
	if e.UD.QPN != sq.QPN() || e.UD.QKey != cm.QKey {
		t.Errorf("established: %+v", e.UD)
	}
	sendTo := func(q *verbs.QP, to cm.UDParam, text string) {
		t.Helper()
		ah, err := client.pd.CreateAH(to.AV)
		must(t, err)
		must(t, q.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte(text), AH: ah, RemoteQPN: to.QPN, RemoteQKey: to.QKey}))
		if m := server.message(); m[verbs.GRHLen:] != text {
			t.Errorf("the server got %q", m)
		}
	}
	sendTo(cq, e.UD, "datagram")

	group := netip.MustParseAddr("233.252.0.1")
	must(t, sid.JoinMulticast(group))
	server.want(sch, cm.EventMulticastJoin)
	sender := client.resolved(cch, cm.UDP, netip.AddrPortFrom(group, 0)) // which only sends
	must(t, sender.JoinMulticast(group))
	sendTo(cq, client.want(cch, cm.EventMulticastJoin).UD, "to all")
	must(t, sid.JoinMulticast(group))
	if e := server.want(sch, cm.EventMulticastError); e.Err() == nil {
		t.Error("joined twice")
	}
	must(t, sid.LeaveMulticast(group))
	wantErr(t, "left twice", sid.LeaveMulticast(group), verbs.ErrNotAttached)

	must(t, lid.Close())
	cid = client.resolved(cch, cm.UDP, lid.LocalAddr())
	must(t, cid.Connect(nil))
	if e := client.want(cch, cm.EventUnreachable); e.Status != 1 {
		t.Errorf("nothing serves: %v, status %d", e, e.Status)
	}
}

// Ports are taken once, unless all agree to share.
func TestIDPorts(t *testing.T) {
	t.Parallel()
	_, server := pair(t)
	ch := server.channel()
	first := server.listenID(ch, cm.TCP)
	at := first.LocalAddr()
	second := server.id(ch, cm.TCP)
	var taken *cm.PortError
	if err := second.BindAddr(at); !errors.As(err, &taken) || !errors.Is(err, syscall.EADDRINUSE) || taken.Port != at.Port() {
		t.Errorf("the port of another: %v", err)
	}
	other := server.id(ch, cm.IB)
	must(t, other.BindAddr(at)) // another port space
	must(t, first.Close())
	must(t, second.BindAddr(at))
	a, b := server.id(ch, cm.IB), server.id(ch, cm.IB)
	for _, id := range []*cm.ID{a, b} {
		must(t, id.SetOption(cm.WithReuseAddr(true)))
		must(t, id.BindAddr(netip.AddrPortFrom(server.dev.Addr(), 7)))
	}
	must(t, a.Listen(1))
	wantErr(t, "a second listener on a shared port", b.Listen(1), syscall.EADDRINUSE)
	if _, err := cm.Listen(server.dev, at, cm.ListenConfig{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Listen on the port of an ID: %v", err)
	}
}

// An ID whose queue pair has gone is still closed, with the groups that it was
// a member of.
func TestIDCloseWithoutItsQP(t *testing.T) {
	t.Parallel()
	client, _ := pair(t)
	ch := client.channel()
	id := client.id(ch, cm.UDP)
	must(t, id.BindAddr(netip.AddrPortFrom(client.dev.Addr(), 0)))
	client.createQP(id)
	group := netip.MustParseAddr("233.252.0.1")
	must(t, id.JoinMulticast(group))
	client.want(ch, cm.EventMulticastJoin)
	must(t, id.DestroyQP())
	client.createQP(id)
	must(t, id.JoinMulticast(group)) // the queue pair that was a member is gone
	client.want(ch, cm.EventMulticastJoin)
	must(t, id.DestroyQP())
	must(t, id.Close())
}

// An address that cannot be resolved leaves the ID as it was: it can be bound
// and resolved again, and no port stays taken.
func TestIDResolveAgain(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	ch := client.channel()
	id := client.id(ch, cm.TCP)
	src := netip.AddrPortFrom(client.dev.Addr(), 7)
	must(t, id.ResolveAddr(src, netip.MustParseAddrPort("[2001:db8::1]:7"), 0))
	client.want(ch, cm.EventAddrError)
	must(t, id.ResolveAddr(src, netip.AddrPortFrom(server.dev.Addr(), 7), 0))
	client.want(ch, cm.EventAddrResolved)
	must(t, id.Close())
	must(t, client.id(ch, cm.TCP).BindAddr(src))
}

// An ID takes its events to another channel.
func TestIDMigrate(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	sch, cch := server.channel(), client.channel()
	lid := server.listenID(sch, cm.TCP)
	cid := client.id(cch, cm.TCP)
	must(t, cid.ResolveAddr(netip.AddrPort{}, lid.LocalAddr(), 0))
	other := client.channel()
	must(t, cid.MigrateID(other))
	client.want(other, cm.EventAddrResolved)
	must(t, cid.ResolveRoute(0))
	client.want(other, cm.EventRouteResolved)
	must(t, cch.Close()) // does not concern it any more
	client.createQP(cid)
	must(t, cid.Connect(nil))
	sid := server.want(sch, cm.EventConnectRequest).ID
	server.createQP(sid)
	must(t, sid.Accept(nil))
	client.want(other, cm.EventEstablished)
	closed := client.channel()
	must(t, closed.Close())
	wantErr(t, "to a closed channel", cid.MigrateID(closed), cm.ErrClosed)
}

// Calls that come too early or too late say what is missing.
func TestIDMisuse(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	ch := client.channel()
	id := client.id(ch, cm.TCP)
	for what, err := range map[string]error{
		"Connect": id.Connect(nil), "Accept": id.Accept(nil), "Reject": id.Reject(nil), "Establish": id.Establish(),
		"Disconnect": id.Disconnect(), "ResolveRoute": id.ResolveRoute(0), "Notify": id.Notify(verbs.EventCommEstablished),
		"JoinMulticast": id.JoinMulticast(netip.MustParseAddr("233.252.0.1")),
	} {
		if state := (*cm.StateError)(nil); !errors.As(err, &state) || state.Op != what {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := id.CreateQP(client.pd, verbs.QPConfig{SendCQ: client.cq, RecvCQ: client.cq}); err == nil {
		t.Error("a queue pair without a device")
	}
	must(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("[2001:db8::1]:7"), 0))
	if e := client.want(ch, cm.EventAddrError); e.Err() == nil {
		t.Error("an address of another IP version was resolved")
	}
	must(t, id.BindAddr(netip.AddrPort{}))
	if state := (*cm.StateError)(nil); !errors.As(id.BindAddr(netip.AddrPort{}), &state) {
		t.Error("bound twice")
	}
	if _, err := id.CreateQP(server.pd, verbs.QPConfig{SendCQ: server.cq, RecvCQ: server.cq}); !errors.Is(err, verbs.ErrOtherDevice) {
		t.Errorf("the domain of another device: %v", err)
	}
	if id.UserData() != "mine" || id.Space() != cm.TCP || id.Device() != client.dev {
		t.Error("the ID has forgotten what it was made with")
	}
	must(t, id.Close())
	must(t, id.Close())
	wantErr(t, "closed", id.Listen(0), cm.ErrClosed)
	if _, err := ch.CreateID(0x9999, nil); err == nil {
		t.Error("a port space that does not exist")
	}
	ch.Close()
	_, err := ch.Get(t.Context())
	wantErr(t, "closed", err, cm.ErrClosed)
	_, err = ch.CreateID(cm.TCP, nil)
	wantErr(t, "closed", err, cm.ErrClosed)
	if s := cm.EventTimewaitExit.String(); s != "RDMA_CM_EVENT_TIMEWAIT_EXIT" {
		t.Error(s)
	}
}
