package cm_test

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// forge has a packet in clear arrive at the server as if the client had sent
// it.
func (n *securedNet) forge(p *rocev2.Packet) {
	data := append(p.AppendTo(nil), 0, 0, 0, 0) // the ICRC
	n.cables[1].Arrive(transport.RxPacket{Src: n.client.dev.Addr(), Dst: n.server.dev.Addr(), SrcPort: 4791, ICRC: transport.ICRCVerified, Data: data})
}

const gsiQKey = 0x80010000 // of queue pair 1 (IBTA 3.5.10)

// forgeMAD is forge of a message of connection management.
func (n *securedNet) forgeMAD(m mad.Message) {
	n.forge(&rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.UDSendOnly, PKey: rocev2.DefaultPKey, DestQPN: 1},
		DETH: rocev2.DETH{QKey: gsiQKey, SrcQPN: 1}, Payload: m.AppendTo(nil)})
}

// made is a secured connection, and the numbers that its messages have.
type made struct {
	client, server   *cm.Conn
	ids, controls    [2]mad.CommID // of the client, and of the server
	numbers, control [2]verbs.QPN
}

func (n *securedNet) connect() *made {
	n.client.t.Helper()
	l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
	got := n.server.serve(l, cm.AcceptConfig{})
	c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
	must(n.client.t, err)
	s := <-got
	must(n.client.t, s.err)
	m := &made{client: c, server: s.conn, numbers: [2]verbs.QPN{c.QP().QPN(), s.conn.QP().QPN()}}
	for i, side := range []*cm.Conn{c, s.conn} {
		m.ids[i], m.controls[i], m.control[i] = cm.Numbers(side)
	}
	return m
}

// TestForgedIntoSecured has an attacker that knows every number, and is on the
// path, send packets and messages in clear to a secured connection. It has
// taken no packet yet, and none of these.
func TestForgedIntoSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		m := n.connect()
		psn := m.server.QP().Query().RQPSN
		for i := range verbs.PSN(16) {
			n.forge(&rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: m.numbers[1], PSN: psn + i, AckReq: true}, Payload: []byte("forged")})
			n.forge(&rocev2.Packet{BTH: rocev2.BTH{Opcode: rocev2.RCSendOnly, PKey: rocev2.DefaultPKey, DestQPN: m.control[1], PSN: i, AckReq: true}, Payload: (&mad.DREQ{LocalID: m.ids[0], RemoteID: m.ids[1], RemoteQPN: m.numbers[1]}).AppendTo(nil)})
		}
		for i, ids := range [][2]mad.CommID{m.ids, m.controls} {
			number := []verbs.QPN{m.numbers[1], m.control[1]}[i]
			n.forgeMAD(&mad.DREQ{TransactionID: 1, LocalID: ids[0], RemoteID: ids[1], RemoteQPN: number})
			n.forgeMAD(&mad.REJ{TransactionID: 1, LocalID: ids[0], RemoteID: ids[1], Message: mad.StageOther, Reason: mad.ReasonTimeout})
			n.forgeMAD(&mad.RTU{TransactionID: 1, LocalID: ids[0], RemoteID: ids[1]})
			n.forgeMAD(&mad.DREP{TransactionID: 1, LocalID: ids[0], RemoteID: ids[1]})
		}
		for i, number := range []verbs.QPN{m.numbers[0], m.control[0]} { // as if the client had forgotten the connection
			n.forgeMAD(&mad.REQ{LocalID: mad.CommID(77 + i), LocalGUID: mad.GUID(n.client.dev.Query().NodeGUID), LocalQPN: number, PKey: rocev2.DefaultPKey,
				ServiceID: cm.TCP.Service(m.server.LocalAddr().(*cm.Addr).Port()), PathMTU: 3, Primary: mad.Path{LocalGID: n.client.dev.Addr(), RemoteGID: n.server.dev.Addr(), AckTimeout: 14}})
		}
		time.Sleep(3 * time.Minute) // more than a DREQ takes that goes again
		if st := cm.ReadStats(n.server.dev); st.WrongAddress != 4 || st.Unexpected != 2 || st.Duplicates != 2 || st.Refused != 2 {
			t.Errorf("messages in clear: %+v", st)
		}
		if err := errors.Join(m.client.Err(), m.server.Err()); err != nil {
			t.Fatalf("the connection has ended: %v", err)
		}
		if got := n.server.dev.Stats().Drops["wrong_security"]; got != 32 {
			t.Errorf("%d packets were dropped because they are in clear, want 32", got)
		}
		n.echoOnce(m.client, m.server)
		must(t, m.client.Disconnect(n.client.context()))
		<-m.server.Done()
		time.Sleep(time.Minute)
		n.wantNothingLeft()
	})
}

// TestReplayedIntoSecured sends again all that was sent while a connection was
// made, used and ended, at another one of the same hosts.
func TestReplayedIntoSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		first := n.connect()
		n.echoOnce(first.client, first.server)
		must(t, first.client.Disconnect(n.client.context()))
		<-first.server.Done()
		sent := n.cables[0].Take()
		n.client.forget(first.client.QP())
		n.server.forget(first.server.QP())
		replay := func() {
			for _, data := range sent {
				icrc := transport.ICRCVerified
				if transport.IsSealed(data) {
					icrc = transport.ICRCSealed
				}
				n.cables[1].Arrive(transport.RxPacket{Src: n.client.dev.Addr(), Dst: n.server.dev.Addr(), SrcPort: 4791, ICRC: icrc, Data: slices.Clone(data)})
			}
		}
		replay()
		second := n.connect()
		replay()
		n.echoOnce(second.client, second.server)
		time.Sleep(30 * time.Second)
		n.echoOnce(second.client, second.server)
		must(t, second.client.Disconnect(n.client.context()))
		<-second.server.Done()
		time.Sleep(time.Minute)
		n.wantNothingLeft()
	})
}

// TestSilentClients has more clients than there is room for begin a handshake,
// and say nothing more. Others are served meanwhile.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
		got := n.server.serve(l, cm.AcceptConfig{})
		stall := n.dial.Clone()
		stalled := make(chan struct{})
		stall.VerifyConnection = func(tls.ConnectionState) error { <-stalled; return errors.New("too late") }
		var slow sync.WaitGroup
		for range cm.MostControls + 44 {
			slow.Go(func() {
				q, err := n.client.pd.CreateQP(verbs.QPConfig{SendCQ: n.client.cq, RecvCQ: n.client.cq})
				if err == nil {
					_, err = cm.Dial(n.client.context(), q, addr, cm.DialConfig{TLS: stall})
				}
				if err == nil {
					t.Error("a stalled handshake has succeeded")
				}
			})
		}
		time.Sleep(time.Second)
		if got := cm.ReadStats(n.server.dev).Connections; got > cm.MostControls+8 {
			t.Errorf("%d connections", got)
		}
		c, err := cm.Dial(n.client.context(), n.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		must(t, err)
		s := <-got
		must(t, s.err)
		n.echoOnce(c, s.conn)
		time.Sleep(20 * time.Second)
		close(stalled)
		slow.Wait()
		must(t, c.Close())
		time.Sleep(2 * time.Minute)
		n.wantNothingLeft()
	})
}

// request is a REQ of the client for a port.
func (n *securedNet) request(id mad.CommID, port uint16) []byte {
	ip := mad.IPHeader{SourcePort: 9, Source: n.client.dev.Addr(), Destination: n.server.dev.Addr()}
	m := mad.REQ{LocalID: id, LocalGUID: 5, LocalQPN: verbs.QPN(500 + id), PKey: rocev2.DefaultPKey, ServiceID: cm.TCP.Service(port), PathMTU: 3, MaxRetries: 15,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
		Primary: mad.Path{LocalGID: n.client.dev.Addr(), RemoteGID: n.server.dev.Addr(), AckTimeout: 14}, Private: ip.AppendTo(nil)}
	return m.AppendTo(nil)
}

// TestHostileControl has a peer that is authenticated, and breaks the rules of
// the control connection: that ends, and the listener goes on.
func TestHostileControl(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send func(n *securedNet, port uint16) [][]byte
		ends bool // at once
		asks int  // requests that the program gets
	}{
		"nothing":        {func(*securedNet, uint16) [][]byte { return nil }, false, 0},
		"no MAD":         {func(*securedNet, uint16) [][]byte { return [][]byte{[]byte("hello")} }, true, 0},
		"a SIDR_REQ":     {func(*securedNet, uint16) [][]byte { return [][]byte{(&mad.SIDRREQ{RequestID: 1}).AppendTo(nil)} }, true, 0},
		"the end":        {func(*securedNet, uint16) [][]byte { return [][]byte{{}} }, true, 0},
		"another port":   {func(n *securedNet, port uint16) [][]byte { return [][]byte{n.request(1, port+1)} }, false, 0},
		"two requests":   {func(n *securedNet, port uint16) [][]byte { return [][]byte{n.request(1, port), n.request(2, port)} }, false, 1},
		"and then quiet": {func(n *securedNet, port uint16) [][]byte { return [][]byte{n.request(1, port)} }, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newSecuredNet(t, fabric.Config{})
				l, addr := n.server.listen(cm.ListenConfig{TLS: n.listen})
				clear, err := cm.Listen(n.server.dev, netip.AddrPortFrom(n.server.dev.Addr(), addr.Port()+1), cm.ListenConfig{})
				must(t, err)
				defer clear.Close()
				asked := make(chan *cm.Request, 8)
				for _, l := range []*cm.Listener{l, clear} {
					go func() {
						for {
							r, err := l.Accept(n.server.context())
							if err != nil {
								return
							}
							asked <- r
						}
					}()
				}
				p, err := cm.CallControl(n.client.context(), n.client.dev, addr, n.dial)
				must(t, err)
				for _, b := range c.send(n, addr.Port()) {
					p.Send(b)
				}
				time.Sleep(time.Second)
				if ended := cm.Controls(n.server.dev) == 0; ended != c.ends {
					t.Errorf("the control connection has ended: %v, want %v", ended, c.ends)
				}
				if len(asked) != c.asks {
					t.Errorf("%d requests, want %d", len(asked), c.asks)
				}
				for range c.asks {
					must(t, (<-asked).Reject(nil))
				}
				time.Sleep(20 * time.Second)
				if got := cm.Controls(n.server.dev); got != 0 {
					t.Errorf("%d control connections without a connection", got)
				}
				p.Close()
				time.Sleep(time.Minute)
				n.wantNothingLeft()
			})
		})
	}
}

// TestControlOfAnotherListener uses what one listener has authenticated to ask
// another one, which demands certificates.
func TestControlOfAnotherListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecuredNet(t, fabric.Config{})
		strict, strictAddr := n.server.listen(cm.ListenConfig{TLS: n.listen})
		lax := n.listen.Clone()
		lax.ClientAuth = tls.NoClientCert
		_, laxAddr := n.server.listen(cm.ListenConfig{TLS: lax})
		go func() {
			if _, err := strict.Accept(n.server.context()); err == nil {
				t.Error("the strict listener has a request")
			}
		}()
		p, err := cm.CallControl(n.client.context(), n.client.dev, laxAddr, &tls.Config{RootCAs: n.dial.RootCAs})
		must(t, err)
		_, err = p.Dial(n.client.context(), n.client.qp(verbs.RC), strictAddr)
		if r := wantRejected(t, "the request", err, cm.ReasonConsumer); !strings.HasPrefix(string(r.PrivateData), "this listener takes secured") {
			t.Errorf("%q", r.PrivateData)
		}
		p.Close()
		must(t, strict.Close())
		time.Sleep(time.Minute)
		n.wantNothingLeft()
	})
}
