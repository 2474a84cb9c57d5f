package server_test

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/cm"
	"github.com/gosoftroce/rocev2/interop/rping"
	"github.com/gosoftroce/rocev2/rocev2/mad"
	"github.com/gosoftroce/rocev2/server"
	"github.com/gosoftroce/rocev2/server/config"
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
		forge(t, at, 4)
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

// forge sends n requests for connections that nobody waits for.
func forge(t *testing.T, to netip.AddrPort, n int) {
	t.Helper()
	dev, err := verbs.OpenAddr(loopback(), verbs.Config{})
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	pd, err := dev.AllocPD()
	must(t, err)
	cq, err := dev.CreateCQ(16)
	must(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{Type: verbs.GSI, SendCQ: cq, RecvCQ: cq, MaxInline: mad.Len})
	must(t, err)
	must(t, qp.Activate(0))
	ah, err := pd.CreateAH(verbs.AddressVector{DGID: to.Addr()})
	must(t, err)
	for i := range n {
		ip := mad.IPHeader{SourcePort: uint16(1000 + i), Source: dev.Addr(), Destination: to.Addr()}
		req := mad.REQ{
			LocalID: mad.CommID(1 + rand.Uint32()>>1), LocalGUID: mad.GUID(rand.Uint64()), LocalQPN: verbs.QPN(20 + i),
			ServiceID: cm.TCP.Service(to.Port()), PKey: 0xffff, PathMTU: 3, MaxRetries: 15, RetryCount: 7,
			RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
			Primary: mad.Path{LocalGID: dev.Addr(), RemoteGID: to.Addr(), AckTimeout: 14}, Private: ip.AppendTo(nil),
		}
		must(t, qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Inline: req.AppendTo(nil), AH: ah, RemoteQPN: 1, RemoteQKey: verbs.HighQKey}))
	}
}
