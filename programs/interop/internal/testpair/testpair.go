// Package testpair makes what tests of the protocols need at both ends.
package testpair

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

var addrA, addrB = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// Buffer is the receive buffer of a port, in bytes, that holds all that a test
// sends: a side that is not scheduled for a while loses nothing over an
// unreliable service.
const Buffer = 64 << 20

// Devices returns two devices that reach each other, and lose nothing.
func Devices(t testing.TB) (a, b *verbs.Device) {
	t.Helper()
	return DevicesOver(t, fabric.PortConfig{})
}

// DevicesOver returns two devices that reach each other, and lose what a
// configuration says.
func DevicesOver(t testing.TB, port fabric.PortConfig) (a, b *verbs.Device) {
	t.Helper()
	port.RecvBuffer = Buffer
	return verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Port: port}})
}

// Connections returns the two ends of a TCP connection over loopback. They say
// that they join the hosts of Devices: the server's end the second with the
// first, and the client's the first with the second.
func Connections(t testing.TB) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return From(server, addrB), From(client, addrA)
}

// Outcome is what one side of a run has come to.
type Outcome[R any] struct {
	Res R
	Err error
}

// Both runs the two roles against each other, each over one of the Devices.
func Both[R any](t testing.TB, run func(*verbs.Device, net.Conn, interop.Role) (R, error)) (server, client Outcome[R]) {
	t.Helper()
	a, b := Devices(t)
	sc, cc := Connections(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Res, server.Err = run(a, sc, interop.Server)
	}()
	client.Res, client.Err = run(b, cc, interop.Client)
	<-done
	return server, client
}

// From returns the connection with a peer that has another address.
func From(c net.Conn, peer netip.Addr) net.Conn {
	return &conn{c.(*net.TCPConn), net.TCPAddrFromAddrPort(netip.AddrPortFrom(peer, 1))}
}

type conn struct {
	*net.TCPConn
	peer net.Addr
}

func (c *conn) RemoteAddr() net.Addr { return c.peer }

// Listener returns a listener on loopback whose clients come from the second
// of the Devices, and a way to connect to it.
func Listener(t testing.TB) (net.Listener, func() net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return &listener{ln}, func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return From(c, addrA)
	}
}

type listener struct{ net.Listener }

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return From(c, addrB), nil
}
