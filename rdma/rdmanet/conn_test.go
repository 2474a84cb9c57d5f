package rdmanet

import (
	"io"
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/net/nettest"

	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestConn is the test that golang.org/x/net has for implementations of
// net.Conn.
func TestConn(t *testing.T) {
	t.Parallel()
	a, b := verbstest.Devices(t)
	for name, o := range map[string]Options{
		"default": {},
		"small":   {RecvBuffer: 8 << 10, SendBuffer: 4 << 10, Credits: 2},
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				x, y := connect(t, a, b, o)
				return x, y, func() { x.Close(); y.Close() }, nil
			})
		})
	}
}

func TestHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		x, y := connect(t, a, b, Options{})
		go func() { io.WriteString(x, "hello"); x.Close() }()
		got, err := io.ReadAll(y)
		if err != nil || string(got) != "hello" {
			t.Fatalf("%q %v", got, err)
		}
	})
}
