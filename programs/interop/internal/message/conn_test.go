package message

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestClosedDevice: a connection whose device has been closed fails, at either
// end, whatever it was about to do. A server that is done closes its device,
// and may still have to refuse a client.
func TestClosedDevice(t *testing.T) {
	t.Parallel()
	a, b := verbstest.Devices(t)
	at := netip.AddrPortFrom(a.Addr(), 1)
	l, err := Listen(a, at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Shut()
	c, err := Dial(t.Context(), b, at)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	s.SetDeadline(time.Now().Add(time.Minute))
	if n, err := s.Write([]byte("refused")); err == nil {
		t.Errorf("%d bytes are written on a closed device", n)
	}
	if n, err := s.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes are read on a closed device", n)
	}
	s.Close()
	c.Close()
}
