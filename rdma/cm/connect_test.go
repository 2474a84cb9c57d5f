package cm_test

import (
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// A connection of each type: private data and addresses both ways, a message
// both ways, and its end.
func TestConnect(t *testing.T) {
	t.Parallel()
	for name, addrs := range map[string][2]string{"IPv4": {"192.0.2.1", "192.0.2.2"}, "IPv6": {"2001:db8::1", "2001:db8::2"}} {
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
			t.Run(name+" "+typ.String(), func(t *testing.T) {
				t.Parallel()
				hosts := network(t, fabric.Config{}, addrs[0], addrs[1])
				testConnect(t, hosts[0], hosts[1], typ)
			})
		}
	}
}

func testConnect(t *testing.T, client, server *host, typ verbs.QPType) {
	l, addr := server.listen(cm.ListenConfig{Type: typ})
	got := server.serve(l, cm.AcceptConfig{PrivateData: []byte("welcome")})
	c, err := cm.Dial(client.context(), client.qp(typ), addr, cm.DialConfig{PrivateData: []byte("hello")})
	must(t, err)
	s := <-got
	must(t, s.err)

	wantBytes(t, "private data of the request", s.req.PrivateData(), zeros("hello", 56))
	wantBytes(t, "of the accepted connection", s.conn.PrivateData(), zeros("hello", 56))
	wantBytes(t, "of the answer", c.PrivateData(), zeros("welcome", 196))
	for what, pair := range map[string][2]string{
		"the client's peer":   {c.RemoteAddr().String(), addr.String()},
		"the server":          {s.conn.LocalAddr().String(), addr.String()},
		"the server's peer":   {s.conn.RemoteAddr().String(), c.LocalAddr().String()},
		"the client's host":   {c.LocalAddr().(*cm.Addr).Addr().String(), client.dev.Addr().String()},
		"the network's name":  {c.LocalAddr().Network(), "rdma"},
		"the client's vendor": {c.ECE().String(), s.conn.ECE().String()},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %s, want %s", what, pair[0], pair[1])
		}
	}
	if !c.Native() || !s.conn.Native() || !c.QP().Query().AV.Native || !s.conn.QP().Query().AV.Native {
		t.Error("two of this software do not know each other")
	}
	if s.conn.QP().State() != verbs.StateRTS || c.QP().State() != verbs.StateRTS {
		t.Errorf("states %v and %v", s.conn.QP().State(), c.QP().State())
	}
	client.send(c.QP(), "ping")
	if m := server.message(); m != "ping" {
		t.Errorf("the server got %q", m)
	}
	server.send(s.conn.QP(), "pong")
	if m := client.message(); m != "pong" {
		t.Errorf("the client got %q", m)
	}

	must(t, c.Disconnect(client.context()))
	<-s.conn.Done()
	<-c.Done()
	wantErr(t, "the server's end", s.conn.Err(), cm.ErrDisconnected)
	wantErr(t, "the client's end", c.Err(), cm.ErrClosed)
	for _, q := range []*verbs.QP{c.QP(), s.conn.QP()} {
		if q.State() != verbs.StateErr {
			t.Errorf("a queue pair is in %v after the end", q.State())
		}
	}
	must(t, c.Close())
	must(t, s.conn.Close())
}

// The values of the REQ and the REP reach both queue pairs, each where it
// belongs.
func TestTerms(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{})
	got := server.serve(l, cm.AcceptConfig{ResponderResources: verbs.Set(3), InitiatorDepth: verbs.Set(200), RNRRetry: verbs.Set(4), MinRNRTimer: verbs.Set(9)})
	c, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{
		ResponderResources: verbs.Set(7), InitiatorDepth: verbs.Set(5), PathMTU: verbs.MTU512, AckTimeout: 16,
		RetryCount: verbs.Set(2), RNRRetry: verbs.Set(3), MinRNRTimer: verbs.Set(11), TrafficClass: 0x60, Access: verbs.RemoteRead,
	})
	must(t, err)
	s := <-got
	must(t, s.err)
	a, b := c.QP().Query(), s.conn.QP().Query()
	type terms struct {
		mtu                        verbs.MTU
		dest, max                  uint8
		timeout, retry, rnr, timer uint8
		class                      uint8
		access                     verbs.Access
	}
	of := func(q verbs.Attr) terms {
		return terms{q.PathMTU, q.MaxDestRdAtomic, q.MaxRdAtomic, q.Timeout, q.RetryCount, q.RNRRetry, q.MinRNRTimer, q.AV.TrafficClass, q.Access &^ verbs.LocalWrite}
	}
	all := verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.FlushGlobal | verbs.FlushPersistent
	if got, want := of(a), (terms{verbs.MTU512, 7, 3, 16, 2, 4, 11, 0x60, verbs.RemoteRead}); got != want {
		t.Errorf("the client has %+v, want %+v", got, want)
	}
	if got, want := of(b), (terms{verbs.MTU512, 3, 7, 16, 2, 3, 9, 0x60, all}); got != want {
		t.Errorf("the server has %+v, want %+v", got, want)
	}
	if a.SQPSN != b.RQPSN || a.RQPSN != b.SQPSN || a.DestQPN != s.conn.QP().QPN() || b.DestQPN != c.QP().QPN() {
		t.Errorf("PSNs and QPNs do not meet: %+v and %+v", a, b)
	}
	if p := s.req.Params(); p.ResponderResources != 5 || p.InitiatorDepth != 7 || p.Type != verbs.RC {
		t.Errorf("the request asks for %+v", p)
	}
}

// A service of datagrams: number, Q_Key, and a message there.
func TestResolve(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{Type: verbs.UD})
	sq := server.qp(verbs.UD)
	must(t, sq.Activate(cm.QKey))
	ctx := client.context()
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			_, err = r.Accept(ctx, sq, cm.AcceptConfig{PrivateData: []byte("here " + string(r.PrivateData()[:5]))})
		}
		if err != nil {
			t.Error(err)
		}
	}()
	d, err := cm.Resolve(ctx, client.dev, addr, cm.ResolveConfig{PrivateData: []byte("where")})
	must(t, err)
	if d.QPN != sq.QPN() || d.QKey != cm.QKey {
		t.Errorf("resolved to queue pair %v with Q_Key %#x", d.QPN, d.QKey)
	}
	wantBytes(t, "private data", d.PrivateData(), zeros("here where", 136))
	ah, err := d.AddressHandle(client.pd)
	must(t, err)
	cq := client.qp(verbs.UD)
	must(t, cq.Activate(cm.QKey))
	must(t, cq.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("datagram"), AH: ah, RemoteQPN: d.QPN, RemoteQKey: d.QKey}))
	if m := server.message(); m[verbs.GRHLen:] != "datagram" {
		t.Errorf("the server got %q", m)
	}
}
