package udp

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// A port that is closed is refused at once. One that is open never is,
// and gets packets with a right ICRC.
func TestProbePort(t *testing.T) {
	t.Parallel()
	a, b := open(t, loopback(), Config{}), open(t, loopback(), Config{})
	probePort(t, a, b)
	if a.ProbePort(netip.IPv6Loopback(), packet(1, 8), nil) {
		t.Error("an address of the other IP version has refused")
	}
}

func probePort(t *testing.T, a, b *Link) {
	t.Helper()
	if !transport.CanProbePort(transport.Wrapper{Link: a}) {
		t.Fatal("the link cannot learn that nobody has a port")
	}
	stop := make(chan struct{})
	refused := make(chan bool)
	go func() { refused <- transport.ProbePort(transport.Wrapper{Link: a}, b.Addr(), packet(1, 256), stop) }()
	if p := receive(t, b, 1)[0]; p.ICRC == transport.ICRCBad || p.IPID != 0 {
		t.Errorf("a packet of %d bytes, ICRC %v, Identification %d", len(p.Data), p.ICRC, p.IPID)
	}
	close(stop)
	if <-refused {
		t.Error("a port that somebody has is refused")
	}
	b.Close()
	if !a.ProbePort(b.Addr(), packet(1, 256), nil) {
		t.Error("a port that nobody has is not refused")
	}
}
