package cm_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
)

// Each message of a connection's life is lost once, or comes twice: the
// connection is made, carries data, and both sides see its end.
func TestEachMessage(t *testing.T) {
	t.Parallel()
	messages := map[string]struct {
		client bool // sends it
		nth    int
	}{"REQ": {true, 1}, "REP": {false, 1}, "RTU": {true, 2}, "DREQ": {true, 3}, "DREP": {false, 2}}
	for name, m := range messages {
		for _, action := range []fault.Action{fault.Drop, fault.Duplicate} {
			synctest.Test(t, func(t *testing.T) {
				rule := fault.Rule{Action: action, Direction: fault.Tx, Opcodes: []rocev2.Opcode{rocev2.UDSendOnly}, Nth: m.nth}
				var ofClient, ofServer []fault.Rule
				if m.client {
					ofClient = append(ofClient, rule)
				} else {
					ofServer = append(ofServer, rule)
				}
				sw := fabric.NewSwitch(fabric.Config{})
				client, server := hostOn(t, sw, "192.0.2.1", ofClient...), hostOn(t, sw, "192.0.2.2", ofServer...)
				a, b := connect(client, server, cm.DialConfig{})
				client.send(a.QP(), "ping")
				if got := server.message(); got != "ping" {
					t.Errorf("%v of the %s: the server has %q", action, name, got)
				}
				if err := a.Disconnect(client.context()); err != nil {
					t.Errorf("%v of the %s: %v", action, name, err)
				}
				<-b.Done()
				wantErr(t, name, b.Err(), cm.ErrDisconnected)
				resent := cm.ReadStats(client.dev).Resent + cm.ReadStats(server.dev).Resent
				if action == fault.Drop && name != "RTU" && resent == 0 {
					t.Errorf("loss of the %s: nothing was sent again", name)
				}
			})
		}
	}
}

// Both sides close in every order and state, with the queue pairs before or
// after: no ID and no port is left.
func TestCloseInEveryState(t *testing.T) {
	t.Parallel()
	background := context.Background() // of no bubble
	for what, end := range map[string]func(l *cm.Listener, a, b *cm.Conn){
		"client first":       func(_ *cm.Listener, a, b *cm.Conn) { a.Close(); b.Close() },
		"server first":       func(_ *cm.Listener, a, b *cm.Conn) { b.Close(); a.Close() },
		"both at once":       func(_ *cm.Listener, a, b *cm.Conn) { go a.Close(); b.Close() },
		"both disconnect":    func(_ *cm.Listener, a, b *cm.Conn) { go a.Disconnect(background); b.Disconnect(background) },
		"queue pairs before": func(_ *cm.Listener, a, b *cm.Conn) { a.QP().Close(); b.QP().Close(); a.Close(); b.Close() },
		"listener before":    func(l *cm.Listener, a, b *cm.Conn) { l.Close(); l.Close(); a.Close(); b.Close() },
		"several times":      func(_ *cm.Listener, a, b *cm.Conn) { a.Close(); a.Close(); a.Disconnect(background); b.Close() },
		"one only":           func(_ *cm.Listener, a, _ *cm.Conn) { a.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2")
			client, server := hosts[0], hosts[1]
			l, addr := server.listen(cm.ListenConfig{})
			got := server.serve(l, cm.AcceptConfig{})
			a, err := cm.Dial(client.context(), client.qp(verbs.RC), addr, cm.DialConfig{LocalPort: 1234})
			must(t, err)
			b := (<-got).conn
			over := make(chan struct{}, 2)
			for _, c := range []*cm.Conn{a, b} {
				c.AfterEnd(func() { over <- struct{}{} })
			}
			end(l, a, b)
			<-over
			<-over
			<-a.Done()
			<-b.Done()
			synctest.Wait()
			for _, h := range hosts {
				if n := cm.IDs(h.dev); n != 0 {
					t.Errorf("%s: %d IDs are left on %v", what, n, h.dev.Addr())
				}
			}
			again, err := cm.Listen(client.dev, netip.AddrPortFrom(client.dev.Addr(), 1234), cm.ListenConfig{})
			if err != nil {
				t.Errorf("%s: the port of the dial is not free: %v", what, err)
			} else {
				again.Close()
			}
		})
	}
}

// XRC: the initiator dials, the target accepts.
func TestXRC(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{Type: verbs.XRCTarget})
	domain, err := server.dev.OpenXRCD()
	must(t, err)
	ctx := client.context()
	got := make(chan accepted, 1)
	go func() {
		var a accepted
		if a.req, a.err = l.Accept(ctx); a.err == nil {
			q, err := server.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCTarget, XRCD: domain})
			if a.err = err; err == nil {
				a.conn, a.err = a.req.Accept(ctx, q, cm.AcceptConfig{})
			}
		}
		got <- a
	}()
	q, err := client.pd.CreateQP(verbs.QPConfig{Type: verbs.XRCInitiator, SendCQ: client.cq})
	must(t, err)
	c, err := cm.Dial(ctx, q, addr, cm.DialConfig{})
	must(t, err)
	a := <-got
	must(t, a.err)
	if q.State() != verbs.StateRTS || a.conn.QP().Query().DestQPN != q.QPN() {
		t.Errorf("%v, %+v", q.State(), a.conn.QP().Query())
	}
	must(t, c.Disconnect(ctx))
	<-a.conn.Done()
}
