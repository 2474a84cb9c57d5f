//go:build linux

package ucma_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// A program that dies leaves its peer what Linux leaves it, at every stage.
func TestProgramDies(t *testing.T) {
	t.Parallel()
	waiting := func(t testing.TB) *link {
		l := asking(t)
		if !readable(t, l.server.c, 600_000) {
			t.Fatal("no request comes")
		}
		return l
	}
	replied := func(t testing.TB) *link {
		l := requested(t)
		l.accept()
		l.client.want(cm.EventConnectResponse, clientUID)
		return l
	}
	disconnecting := func(t testing.TB) *link {
		l := connected(t)
		l.client.do(abi.Disconnect, 0, u32(l.cid))
		l.server.want(cm.EventDisconnected, serverUID)
		return l
	}
	for _, c := range []struct {
		what   string
		begin  func(testing.TB) *link
		server bool // dies; else the client
		status int32
		want   []cm.EventType // of the other side
	}{
		{"server, request not taken", waiting, true, 28, []cm.EventType{cm.EventRejected}},
		{"server, request in hand", requested, true, 28, []cm.EventType{cm.EventRejected}},
		{"server, accepted", replied, true, 28, []cm.EventType{cm.EventRejected}},
		{"server, connected", connected, true, 0, []cm.EventType{cm.EventDisconnected, cm.EventTimewaitExit}},
		{"server, asked to disconnect", disconnecting, true, 0, []cm.EventType{cm.EventDisconnected, cm.EventTimewaitExit}},
		{"client, accepted", replied, false, 28, []cm.EventType{cm.EventRejected}},
		{"client, connected", connected, false, 0, []cm.EventType{cm.EventDisconnected}},
		{"client, disconnecting", disconnecting, false, 0, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			l := c.begin(t)
			dies, lives, uid := l.client, l.server, uint64(serverUID)
			if c.server {
				dies, lives, uid = l.server, l.client, clientUID
			}
			must(t, dies.c.Close())
			for _, k := range c.want {
				e := lives.want(k, uid)
				if k == cm.EventRejected && e.status() != c.status {
					t.Errorf("%v: status %d; want %d", k, e.status(), c.status)
				}
				if k == cm.EventDisconnected {
					lives.do(abi.Disconnect, 0, u32(map[bool]uint32{true: l.cid, false: l.sid}[c.server]))
				}
			}
			dies.fails("a command after the end", uabi.EBADF, abi.CreateID, 4, u64(1), response, u16(uint16(cm.TCP)), make([]byte, 6))
			must(t, lives.c.Close())
		})
	}
}

// A request whose peer dies before the program has taken it is gone. One that
// the program has in hand cannot be accepted any more, and no event tells of
// it.
func TestPeerDiesBeforeAccept(t *testing.T) {
	t.Parallel()
	l := asking(t)
	if !readable(t, l.server.c, 600_000) {
		t.Fatal("no request comes")
	}
	must(t, l.client.c.Close())
	for readable(t, l.server.c, 0) { // until the rejection has come
		_ = raw(l.server.c, abi.Query, 0, join(response, u32(l.lid), u32(abi.QueryAddr)))
	}
	l.server.idle()

	l = requested(t)
	must(t, l.client.c.Close())
	for raw(l.server.c, abi.Accept, 0, join(u64(0), param(7, ""), u32(l.sid), u32(0), u64(0))).Errno == 0 {
		l.server.t.Log("accepted: the rejection had not come")
		break
	}
	l.server.idle()
	if n := l.server.destroy(l.sid); n != 0 {
		t.Errorf("%d events reported; want none", n)
	}
}

// A listener that is destroyed rejects the requests that were not taken.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	l := asking(t)
	if !readable(t, l.server.c, 600_000) {
		t.Fatal("no request comes")
	}
	if n := l.server.destroy(l.lid); n != 0 {
		t.Errorf("%d events reported; want none", n)
	}
	l.server.idle()
	if e := l.client.want(cm.EventRejected, clientUID); e.status() != 28 {
		t.Errorf("status %d; want 28", e.status())
	}
}

// Beyond the backlog a request is not answered, and comes again.
func TestBacklog(t *testing.T) {
	t.Parallel()
	_, b, client, server := pair(t)
	_, port := server.listenOn(cm.TCP, listenerUID, at(b, 0), 1)
	const n = 4
	for i := range uint64(n) {
		id := client.resolved(cm.TCP, 200+i, at(b, port))
		client.connect(id, verbs.QPN(500+i), "")
	}
	seen := map[verbs.QPN]bool{}
	for range n {
		e := server.want(cm.EventConnectRequest, listenerUID)
		if seen[e.qpn()] {
			t.Errorf("the request of %v comes twice", e.qpn())
		}
		seen[e.qpn()] = true
	}
}

// A listener on the unspecified address takes requests of all devices.
func TestWildcard(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1", "192.0.2.2", "192.0.2.3")
	client, server := start(t, h[0]), start(t, h[1], h[2])
	lid := server.create(cm.TCP, listenerUID)
	server.do(abi.Listen, 0, u32(lid), u32(0)) // binds it, too
	r := server.do(abi.QueryRoute, 208, response, u32(lid), u32(0))
	port := be.Uint16(r[138:])
	if be.Uint64(r) != 0 || le.Uint16(r[136:]) != abi.AFInet || le.Uint32(r[140:]) != 0 || port == 0 {
		t.Errorf("a listener on all devices: % x", r)
	}
	for i, to := range h[1:] {
		uid := uint64(300 + i)
		id := client.resolved(cm.TCP, uid, at(to, port))
		client.connect(id, verbs.QPN(600+i), "")
		e := server.want(cm.EventConnectRequest, listenerUID)
		r := server.do(abi.QueryRoute, 208, response, u32(e.id()), u32(0))
		if own := to.dev.Addr().As4(); be.Uint64(r) != to.dev.Query().NodeGUID || [4]byte(r[140:144]) != own {
			t.Errorf("the request for %v came to % x", to.dev.Addr(), r[136:152])
		}
	}
	server.fails("the port is in use", uabi.EADDRINUSE, abi.BindIP, 0, server.bindCmd(server.create(cm.TCP, 1), at(h[2], port)))

	// One that is bound so can connect, too.
	id := server.create(cm.TCP, serverUID)
	server.do(abi.BindIP, 0, server.bindCmd(id, netip.MustParseAddrPort("0.0.0.0:0")))
	server.do(abi.ResolveIP, 0, make([]byte, 28), in6(at(h[0], 9)), u32(id), u32(0))
	server.want(cm.EventAddrResolved, serverUID)
	if r := server.do(abi.QueryRoute, 208, response, u32(id), u32(0)); be.Uint64(r) == 0 || r[196] != 1 {
		t.Errorf("after it was resolved: % x", r)
	}
}

// A wildcard binds whatever devices there are of its IP version, also none.
func TestWildcardWithoutDevices(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	peer := start(t, h[0])
	lid := peer.create(cm.TCP, listenerUID)
	peer.value = u32(1)
	peer.do(abi.SetOption, 0, u64(0), u32(lid), u32(abi.LevelID), u32(abi.OptionAFOnly), u32(4))
	peer.do(abi.BindIP, 0, peer.bindCmd(lid, netip.MustParseAddrPort("[::]:0")))
	peer.do(abi.Listen, 0, u32(lid), u32(0))
	r := peer.do(abi.QueryRoute, 208, response, u32(lid), u32(0))
	port := be.Uint16(r[138:])
	if le.Uint16(r[136:]) != abi.AFInet6 || port == 0 || be.Uint64(r) != 0 {
		t.Fatalf("bound to no device: % x", r)
	}
	taken := peer.create(cm.TCP, 1)
	peer.do(abi.BindIP, 0, peer.bindCmd(taken, at(h[0], port))) // which is of IPv4
}

// The connection manager gives the longest RNR NAK timer and a local ACK
// timeout of 0.54 s, as Linux.
func TestTimers(t *testing.T) {
	t.Parallel()
	l := requested(t)
	l.accept()
	l.client.want(cm.EventConnectResponse, clientUID)
	l.client.modify(l.cid, l.cq, verbs.StateInit, verbs.StateRTR, verbs.StateRTS)
	for _, q := range []*verbs.QP{l.cq, l.sq} {
		a := q.Query()
		if a.MinRNRTimer != 0 || a.Timeout != 17 {
			t.Errorf("the codes of the RNR timer and the ACK timeout: %d, %d; want 0, 17", a.MinRNRTimer, a.Timeout)
		}
	}
}

// An ID migrates to another file with its events and its number.
func TestMigrate(t *testing.T) {
	t.Parallel()
	l := asking(t)
	if !readable(t, l.server.c, 600_000) {
		t.Fatal("no request comes")
	}
	other := &program{t: t, c: l.server.open(l.b)}
	if n := le.Uint32(other.do(abi.MigrateID, 4, response, u32(l.lid), u32(0))); n != 0 {
		t.Errorf("%d events reported; want none", n)
	}
	l.server.idle()
	l.server.fails("it is of another file", uabi.EINVAL, abi.Listen, 0, u32(l.lid), u32(0))
	e := other.want(cm.EventConnectRequest, listenerUID)

	// The request goes back to the first file, as rdma_migrate_id of a
	// synchronous ID does.
	if n := le.Uint32(l.server.do(abi.MigrateID, 4, response, u32(e.id()), u32(1))); n != 0 {
		t.Errorf("%d events reported; want none", n)
	}
	l.sid = e.id()
	l.accept()
	l.client.want(cm.EventConnectResponse, clientUID)
	l.client.establish(l.cid)
	l.server.want(cm.EventEstablished, serverUID)
	other.idle()
	if n := le.Uint32(l.server.do(abi.MigrateID, 4, response, u32(l.sid), u32(0))); n != 1 {
		t.Errorf("to its own file: %d events reported; want 1", n)
	}
	other.fails("no such file", uabi.ENOENT, abi.MigrateID, 4, response, u32(l.lid), u32(7))
	other.fails("not its file", uabi.EINVAL, abi.MigrateID, 4, response, u32(l.lid), u32(0))
}

// A multicast group is joined and left; events are counted for both.
func TestMulticast(t *testing.T) {
	t.Parallel()
	h := network(t, "192.0.2.1")
	p := start(t, h[0])
	group := netip.MustParseAddrPort("239.1.2.3:0")
	id := p.create(cm.UDP, clientUID)
	p.fails("not bound", uabi.EINVAL, abi.JoinIPMulticast, 4, response, u64(9), in6(group), u32(id))
	p.do(abi.ResolveIP, 0, make([]byte, 28), in6(group), u32(id), u32(0))
	p.want(cm.EventAddrResolved, clientUID)
	mc := p.do(abi.JoinIPMulticast, 4, response, u64(9), in6(group), u32(id))
	e := p.want(cm.EventMulticastJoin, 9)
	dgid := netip.MustParseAddr("::ffff:239.1.2.3").As16()
	if b := e.param(); e.id() != le.Uint32(mc) || e.status() != 0 || e.qpn() != 0xffffff || le.Uint32(b[4:]) != cm.QKey ||
		[16]byte(b[8:24]) != dgid || b[29] != 64 || le.Uint16(b[32:]) != 0 || b[37] != 1 {
		t.Errorf("joined: id %d, status %d, % x", e.id(), e.status(), b[:40])
	}
	second := p.do(abi.JoinMulticast, 4, response, u64(10), u32(id), u16(16), u16(1), pad(sockaddr(group), 128))
	if n := le.Uint32(p.do(abi.LeaveMulticast, 4, response, second, u32(0))); n != 0 {
		t.Errorf("left before the event: %d reported", n)
	}
	p.idle()
	p.do(abi.JoinIPMulticast, 4, response, u64(11), in6(at(h[0], 0)), u32(id))
	if e := p.want(cm.EventMulticastError, 11); e.status() == 0 {
		t.Error("joined what is no group")
	}
	if n := le.Uint32(p.do(abi.LeaveMulticast, 4, response, mc, u32(0))); n != 1 {
		t.Errorf("%d events of the group reported; want 1", n)
	}
	p.fails("left twice", uabi.ENOENT, abi.LeaveMulticast, 4, response, mc, u32(0))
	if n := p.destroy(id); n != 3 {
		t.Errorf("%d events reported; want 3", n)
	}
}
