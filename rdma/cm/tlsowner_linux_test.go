//go:build !portable

package cm_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestSecuredOnOneAddress has two devices share an address. Requests for
// control connections, and sealed packets, come to the one that they are for. A
// port that was given back can be had again.
func TestSecuredOnOneAddress(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	open := func(addr string, c verbs.Config) *host {
		c.Sealing = true
		dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), c)
		must(t, err)
		return newHostOn(t, dev)
	}
	owner := open("127.0.0.1", verbs.Config{Owner: true, Loopback: true})
	lease := open("127.0.0.1", verbs.Config{Loopback: true})
	client := open("127.0.0.2", verbs.Config{})
	n := &securedNet{}
	n.configure(t, testcert.New(t), "127.0.0.1")
	for i, c := range []struct {
		client, server *host
		at             string
	}{
		{client, owner, "127.0.0.1:1"}, {client, lease, "127.0.0.1:2"}, {owner, lease, "127.0.0.1:2"}, {lease, owner, "127.0.0.1:1"},
	} {
		addr := netip.MustParseAddrPort(c.at)
		n.client, n.server = c.client, c.server
		l, err := cm.Listen(c.server.dev, addr, cm.ListenConfig{TLS: n.listen})
		must(t, err)
		got := c.server.serve(l, cm.AcceptConfig{})
		conn, err := cm.Dial(c.client.context(), c.client.qp(verbs.RC), addr, cm.DialConfig{TLS: n.dial})
		if err != nil {
			t.Fatalf("case %d: %v", i, err)
		}
		s := <-got
		must(t, s.err)
		n.echoOnce(conn, s.conn)
		must(t, conn.Disconnect(c.client.context()))
		<-s.conn.Done()
		must(t, l.Close())
		c.client.forget(conn.QP())
		c.server.forget(s.conn.QP())
	}
}
