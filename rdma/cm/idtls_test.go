package cm_test

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// listenSecured makes a listening ID that secures its connections.
func (n *securedNet) listenSecured(ch *cm.EventChannel) *cm.ID {
	n.server.t.Helper()
	id := n.server.id(ch, cm.TCP)
	must(n.server.t, id.SetOption(cm.WithTLS(n.listen)))
	must(n.server.t, id.BindAddr(netip.AddrPortFrom(n.server.dev.Addr(), 0)))
	must(n.server.t, id.Listen(0))
	return id
}

// connectID has an ID of the client connect by a configuration; nil is none.
func (n *securedNet) connectID(ch *cm.EventChannel, to netip.AddrPort, config *tls.Config) *cm.ID {
	n.client.t.Helper()
	id := n.client.resolved(ch, cm.TCP, to)
	must(n.client.t, id.SetOption(cm.WithTLS(config)))
	n.client.createQP(id)
	private := secretOfDial
	if config == nil {
		private = "" // it would go in clear
	}
	must(n.client.t, id.Connect(&cm.ConnParam{PrivateData: []byte(private), ResponderResources: 2, InitiatorDepth: 3, RetryCount: 7, RNRRetryCount: 7}))
	return id
}

// wantPeer checks which peer was authenticated.
func wantPeer(t testing.TB, e *cm.Event, name string) {
	t.Helper()
	if e.TLS == nil || e.TLS.PeerCertificates[0].Subject.CommonName != name {
		t.Errorf("%v: it has the state %+v", e, e.TLS)
	}
}

func TestSecuredID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		sch, cch := n.server.channel(), n.client.channel()
		lid := n.listenSecured(sch)
		cid := n.connectID(cch, lid.LocalAddr(), n.dial)
		e := n.server.want(sch, cm.EventConnectRequest)
		wantBytes(t, "the request", e.Conn.PrivateData, zeros(secretOfDial, 56))
		sid := e.ID
		wantPeer(t, e, "client")
		if err := sid.Accept(&cm.ConnParam{QPN: 77}); err == nil || !strings.Contains(err.Error(), "CreateQP") {
			t.Errorf("accept without a queue pair of the ID: %v", err)
		}
		if _, _, err := sid.InitQPAttr(verbs.StateRTR); err == nil {
			t.Error("the attributes of RTR for a queue pair that is not sealed")
		}
		sq := n.server.createQP(sid)
		must(t, sid.Accept(&cm.ConnParam{PrivateData: []byte(secretOfAccept), RNRRetryCount: 7}))
		answer := n.client.want(cch, cm.EventEstablished)
		wantBytes(t, "the answer", answer.Conn.PrivateData, zeros(secretOfAccept, 196))
		wantPeer(t, answer, "server")
		wantPeer(t, n.server.want(sch, cm.EventEstablished), "client")
		wantSealed(t, cid.QP())
		wantSealed(t, sq)
		n.client.send(cid.QP(), secretText)
		if m := n.server.message(); m != secretText {
			t.Errorf("the server got %q", m)
		}
		must(t, sid.Disconnect())
		n.client.want(cch, cm.EventDisconnected)
		must(t, cid.Disconnect())
		n.server.want(sch, cm.EventDisconnected)
		n.server.want(sch, cm.EventTimewaitExit)
		n.client.want(cch, cm.EventTimewaitExit)
		must(t, errors.Join(cid.Close(), sid.Close(), lid.Close()))
		time.Sleep(time.Minute)
		n.wantNothingLeft()
		for _, cable := range n.cables {
			inClear(t, cable.Take())
		}
	})
}

// TestSecuredIDFails has IDs that are not secured, or not on both sides, a
// program that rejects, and one that closes its ID at once.
func TestSecuredIDFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		sch, cch := n.server.channel(), n.client.channel()
		lid := n.listenSecured(sch)
		clear := n.server.listenID(sch, cm.TCP)
		for _, c := range []struct {
			name   string
			to     *cm.ID
			config *tls.Config
			event  cm.EventType
			want   string
		}{
			{"no TLS here", lid, nil, cm.EventRejected, "secured connections alone"},
			{"no TLS there", clear, n.dial, cm.EventRejected, "has no TLS configuration"},
			{"no certificate", lid, &tls.Config{RootCAs: n.dial.RootCAs}, cm.EventConnectError, "certificate required"},
		} {
			id := n.connectID(cch, c.to.LocalAddr(), c.config)
			e := n.client.want(cch, c.event)
			if e.Err() == nil || !strings.Contains(e.Err().Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, e.Err(), c.want)
			}
			must(t, id.Close())
		}
		gone := n.connectID(cch, lid.LocalAddr(), n.dial)
		must(t, gone.Close())

		id := n.connectID(cch, lid.LocalAddr(), n.dial)
		e := n.server.want(sch, cm.EventConnectRequest)
		must(t, e.ID.Reject([]byte("a secret reason")))
		rejected := n.client.want(cch, cm.EventRejected)
		wantBytes(t, "the reason", rejected.Conn.PrivateData, zeros("a secret reason", 148))
		must(t, errors.Join(id.Close(), e.ID.Close(), lid.Close(), clear.Close()))
		time.Sleep(time.Minute)
		n.wantNothingLeft()
		for _, cable := range n.cables {
			inClear(t, cable.Take())
		}
	})
}

func TestWhatIDsCannotSecure(t *testing.T) {
	t.Parallel()
	n := newSecuredNet(t, fabric.Config{})
	ch := n.server.channel()
	if err := n.server.id(ch, cm.UDP).SetOption(cm.WithTLS(n.listen)); err == nil || !strings.Contains(err.Error(), "type UD") {
		t.Errorf("datagrams: %v", err)
	}
	id := n.server.id(ch, cm.TCP)
	must(t, id.SetOption(cm.WithTLS(n.listen)))
	must(t, id.SetOption(cm.WithType(verbs.UC)))
	if err := id.Listen(0); err == nil || !strings.Contains(err.Error(), "type UC") {
		t.Errorf("UC: %v", err)
	}
	_, server := pair(t)
	id = server.id(server.channel(), cm.TCP)
	must(t, id.SetOption(cm.WithTLS(n.listen)))
	wantErr(t, "a device that does not seal", id.Listen(0), verbs.ErrNotSealing)
	id = n.client.resolved(n.client.channel(), cm.TCP, netip.MustParseAddrPort("192.0.2.2:7"))
	must(t, id.SetOption(cm.WithTLS(n.dial)))
	if err := id.Connect(&cm.ConnParam{QPN: 5}); err == nil || !strings.Contains(err.Error(), "CreateQP") {
		t.Errorf("a queue pair of the program: %v", err)
	}
}
