package server_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server"
	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/testforge"
	"github.com/gosoftroce/rocev2/programs/interop/rping"
	"github.com/gosoftroce/rocev2/verbs"
)

// One host does not take the places of all others.
func TestOneHostLeavesRoom(t *testing.T) {
	t.Parallel()
	f := newFake("rping")
	start(t, func(c *config.Config) { c.Targets.Clients = 8 }, f.target())
	h := <-f.hosts
	at := func(ip string, port int) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: port} }
	var first *server.Guest
	taken := 0
	for i := range 20 {
		g, err := h.Begin(at("192.0.2.1", 1000+i))
		if err != nil {
			continue
		}
		taken++
		first = g
	}
	if taken != 6 {
		t.Errorf("one host has %d of 8 places; want 6", taken)
	}
	other, err := h.Begin(at("192.0.2.2", 1))
	must(t, err)
	other.End("", nil)
	first.End("", nil)
	g, err := h.Begin(at("192.0.2.1", 2000))
	must(t, err)
	g.End("", nil)
}

// Requests that were forged, so that no RTU comes, get nothing of a target:
// no place, no queue pair. They do not keep others from it.
func TestForgedRequestsGetNothing(t *testing.T) {
	t.Parallel()
	d := start(t, func(c *config.Config) { c.Targets.Clients = 4; c.Targets.Only = []string{"rping"} }, server.Targets()...)
	d.serving()
	at := netip.AddrPortFrom(d.addr, rping.DefaultPort)
	_, before := d.items("qps")
	for range 2 {
		forger, err := verbs.OpenAddr(loopback(), verbs.Config{})
		must(t, err)
		t.Cleanup(func() { forger.Close() })
		testforge.Requests(t, forger, at, nil, 4)
	}
	dev, err := verbs.OpenAddr(loopback(), verbs.Config{})
	must(t, err)
	defer dev.Close()
	res, err := rping.Run(t.Context(), dev, at, rping.Config{Count: 3})
	if err != nil || res.Pings != 3 {
		t.Errorf("an honest client: %+v, %v", res, err)
	}
	until(t, "the honest client has gone", func() bool {
		_, n := d.items("connections")
		return n == 0
	})
	if _, after := d.items("qps"); after > before {
		t.Errorf("%d queue pairs; before there were %d", after, before)
	}
}
