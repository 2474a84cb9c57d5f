package cm_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
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
	authority      *testcert.Authority
	dial, listen   *tls.Config
}

func newSecuredNet(t testing.TB, cfg fabric.Config) *securedNet {
	t.Helper()
	sw := fabric.NewSwitch(cfg)
	n := &securedNet{authority: testcert.New(t)}
	var hosts [2]*host
	for i, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		port, err := sw.Attach(netip.MustParseAddr(addr))
		must(t, err)
		n.cables[i] = testcable.New(port)
		dev, err := verbs.OpenLink(n.cables[i], verbs.Config{Sealing: true})
		must(t, err)
		hosts[i] = newHostOn(t, dev)
		hosts[i].port = port
	}
	n.client, n.server = hosts[0], hosts[1]
	n.listen = &tls.Config{Certificates: []tls.Certificate{n.authority.Issue(t, "server", "192.0.2.2")}, ClientCAs: n.authority.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	n.dial = &tls.Config{Certificates: []tls.Certificate{n.authority.Issue(t, "client", "")}, RootCAs: n.authority.Pool}
	return n
}

// sealed reports whether a queue pair takes sealed packets alone.
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

var _ = []any{pkix.Name{}, errors.New, fmt.Sprint, net.IP{}}
