package rdmanet

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// plainLink is a connection without a connection manager.
type plainLink struct{ local, remote *cm.Addr }

func (l plainLink) LocalAddr() net.Addr              { return l.local }
func (l plainLink) RemoteAddr() net.Addr             { return l.remote }
func (l plainLink) Disconnect(context.Context) error { return nil }
func (l plainLink) Close() error                     { return nil }

func endpointOf(t testing.TB, dev *verbs.Device, o Options) endpoint {
	t.Helper()
	ep, err := newEndpoint(dev, o, 0, promise{})
	if err != nil {
		t.Fatal(err)
	}
	return ep
}

// connect makes a connection between two devices. The blocks can be changed
// before they are exchanged.
func connect(t testing.TB, da, db *verbs.Device, o Options, change ...func(a, b *rsocket.Block)) (*Conn, *Conn) {
	t.Helper()
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ea, eb := endpointOf(t, da, o), endpointOf(t, db, o)
	verbstest.Connect(t, ea.qp, eb.qp)
	ba, bb := ea.block(o), eb.block(o)
	for _, f := range change {
		f(&ba, &bb)
	}
	aa := &cm.Addr{AddrPort: netip.AddrPortFrom(da.Addr(), 1), Space: cm.TCP}
	ab := &cm.Addr{AddrPort: netip.AddrPortFrom(db.Addr(), 2), Space: cm.TCP}
	a := newConn(ea, plainLink{aa, ab}, o, &bb)
	b := newConn(eb, plainLink{ab, aa}, o, &ba)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
