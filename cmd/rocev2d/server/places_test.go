package server

import (
	"net"
	"net/netip"
	"testing"
)

type fakeConn struct {
	net.Conn
	from netip.Addr
}

func (c fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 1))
}

// Which connection goes for a new one: the oldest stranger of the same address,
// where that has its places, else of all; then one that has shown the token and
// asks nothing; and none that is being answered.
func TestWhoGoes(t *testing.T) {
	t.Parallel()
	p := newPlaces(nil, 6, 2)
	come := func(from string) (*guest, *guest, bool) {
		c := fakeConn{from: netip.MustParseAddr(from)}
		g := &guest{Conn: c, places: p, host: addressOf(c.RemoteAddr())}
		victim, ok := p.enter(g)
		return g, victim, ok
	}
	a1, _, _ := come("192.0.2.1")
	a2, _, _ := come("::ffff:192.0.2.1")
	if _, v, ok := come("192.0.2.1"); v != a1 || !ok {
		t.Error("a third of an address takes the place of another than the first")
	}
	six, _, _ := come("2001:db8::1")
	come("2001:db8::2")
	if _, v, _ := come("2001:db8::ffff:3"); v != six {
		t.Error("addresses of one network of 64 bits have more places than one")
	}
	a2.known = true
	b, _, _ := come("192.0.2.2")
	come("192.0.2.3")
	if len(p.all) != 6 {
		t.Fatalf("%d have a place", len(p.all))
	}
	for _, g := range p.all {
		g.known = g != b
	}
	if _, v, _ := come("192.0.2.4"); v != b {
		t.Error("one that is known goes before a stranger")
	}
	for _, g := range p.all {
		g.known = true
	}
	if _, v, ok := come("192.0.2.5"); v != a2 || !ok {
		t.Error("the oldest stays though all are known")
	}
	for _, g := range p.all {
		g.served = 1
	}
	if _, v, ok := come("192.0.2.6"); v != nil || ok {
		t.Error("one goes that is being answered")
	}
	if len(p.all) != 6 {
		t.Errorf("%d have a place", len(p.all))
	}
}
