// Package testpair makes what tests of the protocols need at both ends.
package testpair

import (
	"net"
	"testing"

	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// Devices returns two devices that reach each other.
func Devices(t testing.TB) (a, b *verbs.Device) {
	t.Helper()
	return verbstest.Devices(t)
}

// Connections returns the two ends of a TCP connection over loopback.
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
	return server, client
}
