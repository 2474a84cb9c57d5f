package cm_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcable"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// securedNet is two hosts whose devices seal, their cables, and certificates
// for both.
type securedNet struct {
	client, server *host
	cables         [2]*testcable.Cable // of the client, and of the server
	dial, listen   *tls.Config
}

func newSecuredNet(t testing.TB, cfg fabric.Config, wraps ...func(side int, l transport.Link) transport.Link) *securedNet {
	t.Helper()
	sw := fabric.NewSwitch(cfg)
	n := &securedNet{}
	var hosts [2]*host
	for i, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		port, err := sw.Attach(netip.MustParseAddr(addr))
		must(t, err)
		var link transport.Link = port
		for _, wrap := range wraps {
			link = wrap(i, link)
		}
		n.cables[i] = testcable.New(link)
		dev, err := verbs.OpenLink(n.cables[i], verbs.Config{Sealing: true})
		must(t, err)
		hosts[i] = newHostOn(t, dev)
		hosts[i].port = port
	}
	n.client, n.server = hosts[0], hosts[1]
	n.configure(t, testcert.New(t), "192.0.2.2")
	return n
}

// configure makes certificates for both sides.
func (n *securedNet) configure(t testing.TB, a *testcert.Authority, server string) {
	t.Helper()
	n.listen = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "server", server)}, ClientCAs: a.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	n.dial = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "client", "")}, RootCAs: a.Pool}
}

// wantSealed checks that a queue pair takes sealed packets alone.
func wantSealed(t testing.TB, q *verbs.QP) {
	t.Helper()
	s, err := q.Sealing()
	must(t, err)
	if got := s.State(); got != verbs.SecuritySealed {
		t.Errorf("queue pair %v takes %v, want sealed packets alone", q.QPN(), got)
	}
}

const (
	secretOfDial   = "a secret of the dialler"
	secretOfAccept = "a secret of the listener"
	secretText     = "a secret text in a message"
)

// inClear returns how many packets were sent sealed, and fails where the secret
// can be read.
func inClear(t testing.TB, sent [][]byte) (sealed int) {
	t.Helper()
	for _, p := range sent {
		if bytes.Contains(p, []byte("a secret")) {
			t.Errorf("the secret was sent in clear: %q", p)
		}
		if transport.IsSealed(p) {
			sealed++
		}
	}
	return sealed
}

// echoOnce sends a message there and back.
func (n *securedNet) echoOnce(c, s *cm.Conn) {
	n.client.t.Helper()
	n.client.send(c.QP(), secretText)
	if m := n.server.message(); m != secretText {
		n.client.t.Errorf("the server got %q", m)
	}
	n.server.send(s.QP(), secretText+" too")
	if m := n.client.message(); m != secretText+" too" {
		n.client.t.Errorf("the client got %q", m)
	}
}

func TestSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
		got := n.server.serve(l, cm.AcceptConfig{PrivateData: []byte(secretOfAccept)})
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial, PrivateData: []byte(secretOfDial)})
		must(t, err)
		s := <-got
		must(t, s.err)
		wantBytes(t, "private data of the request", s.req.PrivateData(), zeros(secretOfDial, 56))
		wantBytes(t, "of the answer", c.PrivateData(), zeros(secretOfAccept, 196))
		for name, side := range map[string]interface {
			ConnectionState() (tls.ConnectionState, bool)
		}{"server": c, "client": s.conn, "client ": s.req} {
			state, ok := side.ConnectionState()
			if !ok || !state.HandshakeComplete || state.PeerCertificates[0].Subject.CommonName != strings.TrimSpace(name) {
				t.Errorf("the state of the %s's peer: %v, %+v", name, ok, state.PeerCertificates)
			}
		}
		wantSealed(t, c.QP())
		wantSealed(t, s.conn.QP())
		n.echoOnce(c, s.conn)

		must(t, c.Disconnect(n.client.context()))
		<-s.conn.Done()
		wantErr(t, "the server's end", s.conn.Err(), cm.ErrDisconnected)
		time.Sleep(5 * time.Second)
		for _, h := range []*host{n.client, n.server} {
			if got := cm.Controls(h.dev); got != 0 {
				t.Errorf("%d control connections after the end", got)
			}
			if st := cm.ReadStats(h.dev); st.Connections != 0 {
				t.Errorf("after the end: %+v", st)
			}
		}
		for i, cable := range n.cables {
			if sealed := inClear(t, cable.Take()); sealed < 10 {
				t.Errorf("side %d has sealed %d packets", i, sealed)
			}
		}
	})
}

// TestSecuredOnABadPath makes, uses and ends connections on paths that lose,
// reorder, double and damage packets, also where an answer takes longer than it
// takes until messages go again.
func TestSecuredOnABadPath(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]struct {
		delay      time.Duration
		ackTimeout uint8
	}{"near": {30 * time.Microsecond, 0}, "far": {200 * time.Millisecond, 18}} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newSecuredNet(t, fabric.Config{Seed: seed, Port: fabric.PortConfig{Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, Corrupt: 0.01, Delay: path.delay}})
					n.comeAndGo(cm.DialConfig{TLS: n.dial, AckTimeout: path.ackTimeout, PrivateData: []byte(secretOfDial)})
				})
			})
		}
	}
}

// comeAndGo makes connections, one after the other, and ends them on either
// side.
func (n *securedNet) comeAndGo(d cm.DialConfig) {
	t := n.client.t
	t.Helper()
	l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
	for i := range 6 {
		got := n.server.serve(l, cm.AcceptConfig{PrivateData: []byte(secretOfAccept)})
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, d)
		must(t, err)
		s := <-got
		must(t, s.err)
		wantBytes(t, "private data of the request", s.req.PrivateData(), zeros(secretOfDial, 56))
		wantBytes(t, "of the answer", c.PrivateData(), zeros(secretOfAccept, 196))
		for range 5 {
			n.echoOnce(c, s.conn)
		}
		if i%2 == 0 {
			must(t, c.Disconnect(n.client.context()))
		} else {
			must(t, s.conn.Disconnect(n.server.context()))
		}
		<-c.Done()
		<-s.conn.Done()
		n.client.forget(c.QP())
		n.server.forget(s.conn.QP())
	}
	time.Sleep(time.Minute)
	n.wantNothingLeft()
	for _, cable := range n.cables {
		inClear(t, cable.Take())
	}
}

// forget closes a queue pair, and drops its completions.
func (h *host) forget(q *verbs.QP) {
	q.Close()
	var wcs [64]verbs.WC
	for h.cq.Poll(wcs[:]) > 0 {
	}
}

// wantNothingLeft checks that no connection is left on either side, some time
// after the end of all.
func (n *securedNet) wantNothingLeft() {
	for _, h := range []*host{n.client, n.server} {
		h.t.Helper()
		if got := cm.Controls(h.dev); got != 0 {
			h.t.Errorf("%v: %d control connections after the end", h.dev.Addr(), got)
		}
		held := cm.Held(h.dev)
		if st := cm.ReadStats(h.dev); st.Connections != 0 || cm.IDs(h.dev) != 0 || held != 0 {
			h.t.Errorf("%v: after the end %d connections, %d IDs, %d numbers held", h.dev.Addr(), st.Connections, cm.IDs(h.dev), held)
		}
	}
}

// TestNotSecured has peers of which one has TLS, or the wrong one. None falls
// back to packets in clear, no program hears of a request, and the listener
// goes on.
func TestNotSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		told := make(chan string, 10)
		l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen, OnNotSecured: func(client net.Addr, err error) {
			told <- fmt.Sprint(client.(*cm.Addr).Addr(), ": ", err)
		}})
		got := n.server.serve(l, cm.AcceptConfig{})
		other := testcert.New(t)
		old := n.dial.Clone()
		old.MaxVersion = tls.VersionTLS12
		for _, c := range []struct {
			name   string
			config *tls.Config
			want   string
			told   string // to the program of the listener; "": nothing
		}{
			{"no TLS", nil, "secured connections alone", ""},
			{"another authority", &tls.Config{RootCAs: other.Pool, Certificates: n.dial.Certificates}, "certificate signed by unknown authority", "bad certificate"},
			{"another name", &tls.Config{RootCAs: n.dial.RootCAs, Certificates: n.dial.Certificates, ServerName: "elsewhere"}, "elsewhere", "bad certificate"},
			{"no certificate", &tls.Config{RootCAs: n.dial.RootCAs}, "certificate required", "didn't provide a certificate"},
			{"a certificate of another authority", &tls.Config{RootCAs: n.dial.RootCAs, Certificates: []tls.Certificate{other.Issue(t, "client", "")}}, "", "certificate"},
			{"TLS 1.2", old, "version", ""},
		} {
			q := n.client.qp(verbs.RC)
			_, err := cm.Dial(n.client.context(), q, addr, cm.DialConfig{TLS: c.config, PrivateData: []byte("x")})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			if s := q.State(); s != verbs.StateInit {
				t.Errorf("%s: the queue pair is in %v", c.name, s)
			}
			q.Close()
			if c.told == "" {
				continue // there was no handshake
			}
			if got := <-told; !strings.HasPrefix(got, "192.0.2.1: ") || !strings.Contains(got, c.told) {
				t.Errorf("%s: the listener is told %q, want %q", c.name, got, c.told)
			}
		}
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		must(t, err)
		s := <-got
		must(t, s.err)
		n.echoOnce(c, s.conn)
		must(t, c.Close())
		<-s.conn.Done()
		time.Sleep(time.Minute)
		n.wantNothingLeft()
	})
}

// TestListenerWithoutTLS has a dialler with TLS find one that has none, and a
// port at which nothing listens.
func TestListenerWithoutTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		l, addr := n.server.listen(cm.ListenConfig{})
		got := n.server.serve(l, cm.AcceptConfig{})
		_, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		wantErr(t, "a listener without TLS", err, cm.ErrNotSecured)
		if !strings.Contains(err.Error(), "it has no TLS configuration") {
			t.Error(err)
		}
		_, err = cm.Dial(n.client.context(), n.client.qp(verbs.RC), netip.AddrPortFrom(addr.Addr(), 1), cm.DialConfig{TLS: n.dial})
		wantErr(t, "no listener", err, syscall.ECONNREFUSED)
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{})
		must(t, err)
		s := <-got
		must(t, s.err)
		if _, ok := c.ConnectionState(); ok {
			t.Error("a connection in clear has a state of TLS")
		}
		n.echoOnce(c, s.conn)
	})
}

// TestWhatCannotBeSecured has types and devices without security.
func TestWhatCannotBeSecured(t *testing.T) {
	t.Parallel()
	n := newSecuredNet(t, fabric.Config{LinkMTU: 4180}) // 4096 fit without what seals a packet
	for typ, want := range map[verbs.QPType]string{verbs.UD: "type UD", verbs.UC: "type UC"} {
		if _, err := cm.Listen(n.server.dev, netip.AddrPort{}, cm.ListenConfig{Type: typ, TLS: n.listen}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen for %v: %v", typ, err)
		}
	}
	to := netip.MustParseAddrPort("192.0.2.2:7471")
	if _, err := cm.Dial(t.Context(), n.client.qp(verbs.UC), to, cm.DialConfig{TLS: n.dial}); err == nil || !strings.Contains(err.Error(), "type UC cannot be secured") {
		t.Errorf("dial of UC: %v", err)
	}
	if _, err := cm.Dial(t.Context(), n.client.qp(verbs.RC), to, cm.DialConfig{TLS: n.dial, PathMTU: verbs.MTU4096}); err == nil || !strings.Contains(err.Error(), "leaves no room") {
		t.Errorf("a path MTU of 4096: %v", err)
	}
	client, server := pair(t)
	_, err := cm.Dial(t.Context(), client.qp(verbs.RC), to, cm.DialConfig{TLS: n.dial})
	wantErr(t, "dial on a device that does not seal", err, verbs.ErrNotSealing)
	_, err = cm.Listen(server.dev, to, cm.ListenConfig{TLS: n.listen})
	wantErr(t, "listen on a device that does not seal", err, verbs.ErrNotSealing)
	l, err := cm.Listen(server.dev, to, cm.ListenConfig{}) // nothing is left of the attempt
	must(t, err)
	must(t, l.Close())
}
