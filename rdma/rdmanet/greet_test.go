package rdmanet

import (
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testforge"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/rdmanet/rsocket"
	"github.com/gosoftroce/rocev2/verbs"
)

// Nothing is made for a request whose peer does not answer, and Accept does not
// return it. What a true peer sends before Accept is called is not lost.
func TestForgedRequestsMakeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sw := fabric.NewSwitch(fabric.Config{})
		open := func(addr string) *verbs.Device {
			port, err := sw.Attach(netip.MustParseAddr(addr))
			must(t, err)
			dev, err := verbs.OpenLink(port, verbs.Config{})
			must(t, err)
			t.Cleanup(func() { dev.Close() })
			return dev
		}
		server, client, forger := open("192.0.2.1"), open("192.0.2.2"), open("192.0.2.3")
		ln, d := listenOn(t, server, client, Options{})
		before := server.Stats()
		ring := rsocket.Block{Credits: 4, Slots: rsocket.Memory{Addr: 1 << 20, Key: 1, Length: rsocket.Slots}, Ring: rsocket.Memory{Addr: 1 << 21, Key: 1, Length: 1 << 18}}
		testforge.Requests(t, forger, ln.Addr().(*cm.Addr).AddrPort, ring.AppendTo(nil), 100)
		time.Sleep(time.Second)
		if got := cm.ReadStats(server).HalfOpen; got != 100 {
			t.Errorf("%d requests have come", got)
		}
		c, err := d.DialContext(t.Context(), "rdma", ln.Addr().String())
		must(t, err)
		sent := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte("before Accept"))
			sent <- err
		}()
		time.Sleep(time.Millisecond)
		if after := server.Stats(); after.QPs != before.QPs || after.MRs != before.MRs {
			t.Errorf("%d queue pairs and %d regions; before there were %d and %d", after.QPs, after.MRs, before.QPs, before.MRs)
		}
		s, err := ln.AcceptContext(t.Context())
		must(t, err)
		if s.RemoteAddr().(*cm.Addr).Addr() != client.Addr() {
			t.Errorf("a forged request of %v was accepted", s.RemoteAddr())
		}
		b := make([]byte, 13)
		if _, err := io.ReadFull(s, b); err != nil || string(b) != "before Accept" {
			t.Errorf("%q, %v", b, err)
		}
		must(t, <-sent)
		must(t, c.Close())
		must(t, s.Close())
		time.Sleep(30 * time.Second)
		if got := cm.ReadStats(server).HalfOpen; got != 0 {
			t.Errorf("%d requests are still there", got)
		}
	})
}

// What a peer is told of its ring is the same each time, and no other peer's.
func TestPromises(t *testing.T) {
	t.Parallel()
	remote := cm.Addr{AddrPort: netip.MustParseAddrPort("192.0.2.1:7471")}
	p := cm.Params{QPN: 17, PSN: 18}
	first := promised(remote, &p)
	if again := promised(remote, &p); again != first {
		t.Errorf("%v, then %v", first, again)
	}
	seen := map[promise]bool{first: true}
	for i := range 3 {
		q, from := p, remote
		switch i {
		case 0:
			q.QPN++
		case 1:
			q.PSN++
		case 2:
			from.AddrPort = netip.MustParseAddrPort("192.0.2.2:7471")
		}
		got := promised(from, &q)
		if seen[got] || got.key == 0 || got.addr%4096 != 0 || got.addr>>52 != 0 {
			t.Errorf("%v", got)
		}
		seen[got] = true
	}
}
