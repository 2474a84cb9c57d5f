//go:build linux

package ucma_test

import (
	"bytes"
	"context"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/programs/ucma"
	"github.com/gosoftroce/rocev2/programs/ucma/abi"
	uabi "github.com/gosoftroce/rocev2/programs/uverbs/abi"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

const (
	listenerUID = 100 + iota
	clientUID
	serverUID
)

// link is a connection of two programs.
type link struct {
	a, b           *host
	client, server *program
	lid, cid, sid  uint32
	cq, sq         *verbs.QP
}

// requested makes two programs of which one has asked for a connection, and the
// other one has taken the request.
func requested(t testing.TB) *link {
	t.Helper()
	l := asking(t)
	l.sid = l.server.want(cm.EventConnectRequest, listenerUID).id()
	return l
}

// asking is requested without the last step.
func asking(t testing.TB) *link {
	t.Helper()
	l := &link{}
	l.a, l.b, l.client, l.server = pair(t)
	var port uint16
	l.lid, port = l.server.listenOn(cm.TCP, listenerUID, at(l.b, 0), 0)
	l.cid = l.client.resolved(cm.TCP, clientUID, at(l.b, port))
	l.cq, l.sq = l.a.qp(verbs.RC), l.b.qp(verbs.RC)
	l.client.modify(l.cid, l.cq, verbs.StateInit)
	l.client.connect(l.cid, l.cq.QPN(), "hello")
	return l
}

func (l *link) accept() {
	l.server.modify(l.sid, l.sq, verbs.StateInit, verbs.StateRTR, verbs.StateRTS)
	l.server.accept(l.sid, serverUID, l.sq.QPN(), "welcome")
}

// connected is requested with the rest.
func connected(t testing.TB) *link {
	t.Helper()
	l := requested(t)
	l.accept()
	l.client.want(cm.EventConnectResponse, clientUID)
	l.client.modify(l.cid, l.cq, verbs.StateInit, verbs.StateRTR, verbs.StateRTS)
	l.client.establish(l.cid)
	l.server.want(cm.EventEstablished, serverUID)
	return l
}

// A connection in the commands of librdmacm, from its beginning to its end.
func TestConnection(t *testing.T) {
	t.Parallel()
	l := asking(t)
	e := l.server.want(cm.EventConnectRequest, listenerUID)
	l.sid = e.id()
	if want := pad([]byte("hello"), 56); !bytes.Equal(e.connPrivate(), want) {
		t.Errorf("private data of the request: %q; want %q", e.connPrivate(), want)
	}
	if p := e.param(); e.qpn() != l.cq.QPN() || p[266] != 4 || p[267] != 3 || p[268] != 1 || p[269] != 6 || p[270] != 5 {
		t.Errorf("terms of the request: %v, % x", e.qpn(), p[264:272])
	}
	l.server.wantRoute(l.sid, l.b, l.a, 1)
	l.accept()

	e = l.client.want(cm.EventConnectResponse, clientUID)
	if want := pad([]byte("welcome"), 196); !bytes.Equal(e.connPrivate(), want) {
		t.Errorf("private data of the answer: %q; want %q", e.connPrivate(), want)
	}
	if e.id() != l.cid || e.qpn() != l.sq.QPN() || e.param()[270] != 5 {
		t.Errorf("the answer: id %d, %v, % x", e.id(), e.qpn(), e.param()[264:272])
	}
	l.client.wantRoute(l.cid, l.a, l.b, 1)
	l.client.modify(l.cid, l.cq, verbs.StateInit, verbs.StateRTR, verbs.StateRTS)
	l.client.establish(l.cid)
	if e = l.server.want(cm.EventEstablished, serverUID); e.id() != l.sid {
		t.Errorf("established: id %d; want %d", e.id(), l.sid)
	}
	must(t, l.sq.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{l.b.mr.Slice(0, 64)}}))
	must(t, l.cq.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("data"), Signaled: true}))
	var wc [1]verbs.WC
	_, err := l.b.cq.Wait(t.Context(), wc[:])
	must(t, err)
	if got := l.b.mr.Bytes()[:wc[0].ByteLen]; string(got) != "data" {
		t.Errorf("the queue pairs carry %q", got)
	}

	l.client.do(abi.Disconnect, 0, u32(l.cid))
	l.server.want(cm.EventDisconnected, serverUID)
	l.server.do(abi.Disconnect, 0, u32(l.sid))
	l.client.want(cm.EventDisconnected, clientUID)
	l.client.want(cm.EventTimewaitExit, clientUID)
	l.server.want(cm.EventTimewaitExit, serverUID)
	l.client.do(abi.Disconnect, 0, u32(l.cid)) // too late, but no error
	l.client.idle()
	l.server.idle()
	for _, c := range []struct {
		p        *program
		id       uint32
		reported uint32
	}{{l.client, l.cid, 5}, {l.server, l.sid, 3}, {l.server, l.lid, 1}} {
		if n := c.p.destroy(c.id); n != c.reported {
			t.Errorf("ID %d: %d events reported; want %d", c.id, n, c.reported)
		}
	}
}

// wantRoute checks QUERY_ROUTE and the three kinds of QUERY.
func (p *program) wantRoute(id uint32, own, peer *host, paths uint32) {
	p.t.Helper()
	r := p.do(abi.QueryRoute, 208, response, u32(id), u32(0))
	guid := own.dev.Query().NodeGUID
	local, remote := own.dev.Addr().As16(), peer.dev.Addr().As16()
	if be.Uint64(r) != guid || !bytes.Equal(r[8:24], remote[:]) || !bytes.Equal(r[24:40], local[:]) || be.Uint16(r[60:]) != 0xffff {
		p.t.Errorf("route: GUID, GIDs, P_Key % x", r[:64])
	}
	if le.Uint32(r[192:]) != paths || r[196] != 1 || le.Uint32(r[200:]) != 5 {
		p.t.Errorf("route: paths, port, index % x", r[192:])
	}
	if paths > 0 && (le.Uint32(r[56:]) != uint32(own.dev.PathMTU(peer.dev.Addr())) || r[62] != 64) {
		p.t.Errorf("path: % x", r[8:72])
	}
	if le.Uint16(r[136:]) != abi.AFInet || !bytes.Equal(r[140:144], local[12:]) || !bytes.Equal(r[168:172], remote[12:]) {
		p.t.Errorf("route: addresses % x", r[136:192])
	}
	a := p.do(abi.Query, 280, response, u32(id), u32(abi.QueryAddr))
	if be.Uint64(a) != guid || a[8] != 1 || le.Uint16(a[12:]) != 16 || !bytes.Equal(a[16:32], r[136:152]) || !bytes.Equal(a[144:160], r[164:180]) {
		p.t.Errorf("addresses: % x", a)
	}
	g := p.do(abi.Query, 280, response, u32(id), u32(abi.QueryGID))
	if le.Uint16(g[16:]) != abi.AFIB || !bytes.Equal(g[24:40], local[:]) || !bytes.Equal(g[152:168], remote[:]) || be.Uint64(g[40:])>>16 != 0x106 {
		p.t.Errorf("GIDs: % x", g)
	}
	path := p.do(abi.Query, 8+6*72, response, u32(id), u32(abi.QueryPath))
	if le.Uint32(path) != paths {
		p.t.Errorf("paths: % x", path)
	}
	if paths > 0 && (!bytes.Equal(path[24:40], remote[:]) || !bytes.Equal(path[40:56], local[:])) {
		p.t.Errorf("path: % x", path)
	}
}

// Rejections have words, and a reason.
func TestReject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		given byte
		want  int32
	}{{0, 28}, {28, 28}, {35, 35}} {
		l := requested(t)
		l.server.fails("a reason that Linux does not take", uabi.EINVAL, abi.Reject, 0, u32(l.sid), []byte{0, 9, 0, 0}, make([]byte, 256))
		l.server.do(abi.Reject, 0, u32(l.sid), []byte{2, c.given, 0, 0}, pad([]byte("no"), 256))
		e := l.client.want(cm.EventRejected, clientUID)
		if e.status() != c.want || !bytes.Equal(e.connPrivate(), pad([]byte("no"), 148)) {
			t.Errorf("rejected: status %d, %q; want %d", e.status(), e.connPrivate(), c.want)
		}
		l.server.destroy(l.sid)
		l.server.idle()
	}
	_, b, client, _ := pair(t)
	id := client.resolved(cm.TCP, clientUID, at(b, 9))
	client.connect(id, 77, "")
	if e := client.want(cm.EventRejected, clientUID); e.status() != 8 {
		t.Errorf("nobody listens: status %d; want 8", e.status())
	}
}

// A program that connects before the other one listens is not refused at once.
func TestConnectBeforeListen(t *testing.T) {
	t.Parallel()
	_, b, client, server := pair(t)
	id := client.resolved(cm.TCP, clientUID, at(b, 9))
	client.connect(id, 77, "")
	server.listenOn(cm.TCP, listenerUID, at(b, 9), 0)
	server.want(cm.EventConnectRequest, listenerUID)
}

// Datagrams: the queue pair of a service is found.
func TestDatagrams(t *testing.T) {
	t.Parallel()
	for _, space := range []cm.PortSpace{cm.UDP, cm.IPoIB} {
		a, b, client, server := pair(t)
		_, port := server.listenOn(space, listenerUID, at(b, 0), 0)
		cid := client.resolved(space, clientUID, at(b, port))
		q := a.qp(verbs.UD)
		client.modify(cid, q, verbs.StateInit)
		if !ucma.Datagrams(a.dev.Addr()) || ucma.Datagrams(netip.MustParseAddr("192.0.2.99")) {
			t.Error("it is not seen where the program has datagrams")
		}
		if q.Query().QKey != cm.QKey {
			t.Errorf("Q_Key %#x", q.Query().QKey)
		}
		client.connect(cid, q.QPN(), "who?")
		e := server.want(cm.EventConnectRequest, listenerUID)
		if !bytes.Equal(e.udPrivate(), pad([]byte("who?"), 180)) {
			t.Errorf("private data of the request: %q", e.udPrivate())
		}
		server.accept(e.id(), serverUID, 1234, "me")
		server.idle()
		e = client.want(cm.EventEstablished, clientUID)
		dgid := b.dev.Addr().As16()
		if p := e.param(); e.qpn() != 1234 || le.Uint32(p[4:]) != cm.QKey || !bytes.Equal(p[8:24], dgid[:]) || p[29] != 64 || p[37] != 1 || p[38] != 1 {
			t.Errorf("the answer: %v, % x", e.qpn(), p[:40])
		}
		if !bytes.Equal(e.udPrivate(), pad([]byte("me"), 136)) {
			t.Errorf("private data of the answer: %q", e.udPrivate())
		}
		client.fails("datagrams have no connection", uabi.EINVAL, abi.Disconnect, 0, u32(cid))

		again := client.resolved(space, 55, at(b, port))
		client.connect(again, q.QPN(), "")
		e = server.want(cm.EventConnectRequest, listenerUID)
		server.do(abi.Reject, 0, u32(e.id()), []byte{0, 0, 0, 0}, make([]byte, 256))
		if e = client.want(cm.EventUnreachable, 55); e.status() != 2 {
			t.Errorf("rejected: status %d; want 2", e.status())
		}
	}
}

// A program whose peer uses package cm in Go, from both sides. Such a peer says
// that it is this software, which no command carries.
func TestPeerInGo(t *testing.T) {
	t.Parallel()
	a, b, client, server := pair(t)
	_, port := server.listenOn(cm.TCP, listenerUID, at(b, 0), 0)
	gq, sq := a.qp(verbs.RC), b.qp(verbs.RC)
	dialed := make(chan *cm.Conn, 1)
	go func() {
		conn, err := cm.Dial(context.Background(), gq, at(b, port), cm.DialConfig{PrivateData: []byte("go")})
		if err != nil {
			t.Error(err)
		}
		dialed <- conn
	}()
	e := server.want(cm.EventConnectRequest, listenerUID)
	if ece := le.Uint64(e[328:]); ece != 0 {
		t.Errorf("the program gets ECE %#x, which its driver does not know", ece)
	}
	server.modify(e.id(), sq, verbs.StateInit, verbs.StateRTR)
	if !cm.Native(b.dev, a.dev.Addr()) {
		t.Error("the peer is not known as this software")
	}
	server.modify(e.id(), sq, verbs.StateRTS)
	server.accept(e.id(), serverUID, sq.QPN(), "")
	conn := <-dialed
	if !conn.Native() {
		t.Error("the peer does not know that this side is this software")
	}
	server.want(cm.EventEstablished, serverUID)
	must(t, server.c.Close())
	<-conn.Done()

	l, err := cm.Listen(b.dev, netip.AddrPort{}, cm.ListenConfig{})
	must(t, err)
	defer l.Close()
	cq, lq := a.qp(verbs.RC), b.qp(verbs.RC)
	cid := client.resolved(cm.TCP, clientUID, l.Addr().(*cm.Addr).AddrPort)
	client.modify(cid, cq, verbs.StateInit)
	client.connect(cid, cq.QPN(), "hello")
	req, err := l.Accept(t.Context())
	must(t, err)
	if req.Native() {
		t.Error("a program says that it is this software; the library of a peer of Linux would refuse it")
	}
	conn, err = req.Accept(t.Context(), lq, cm.AcceptConfig{})
	must(t, err)
	client.want(cm.EventConnectResponse, clientUID)
	client.modify(cid, cq, verbs.StateInit, verbs.StateRTR, verbs.StateRTS)
	client.establish(cid)
	must(t, conn.Close())
	client.want(cm.EventDisconnected, clientUID)
}
