package cm_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// A program that passes events on learns of them without waiting, and leaves
// requests for which it has no room: their peers ask again.
func TestPoll(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	news := make(chan struct{}, 1)
	sch := cm.NewEventChannel(cm.WithDevices(server.dev), cm.WithNotify(func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(func() { sch.Close() })
	poll := func() *cm.Event {
		t.Helper()
		for {
			e, err := sch.Poll()
			must(t, err)
			if e != nil {
				return e
			}
			<-news
		}
	}
	if e, err := sch.Poll(); e != nil || err != nil {
		t.Fatalf("a new channel has %v, %v", e, err)
	}
	lid := server.listenID(sch, cm.TCP)
	cch := client.channel()
	cid := client.resolved(cch, cm.TCP, lid.LocalAddr())
	must(t, cid.SetOption(cm.WithoutECE()))
	must(t, cid.Connect(&cm.ConnParam{QPN: 77, RetryCount: 7}))
	e := poll()
	if e.Type != cm.EventConnectRequest || e.ID.RemoteECE() != (cm.ECE{}) {
		t.Errorf("%v, ECE %v", e, e.ID.RemoteECE())
	}
	must(t, e.ID.Ignore())
	must(t, e.ID.Close())
	if err := e.ID.Ignore(); err == nil {
		t.Error("ignored after the end")
	}
	again := poll() // the peer has not been rejected
	if again.Type != cm.EventConnectRequest || again.Conn.QPN != 77 {
		t.Fatalf("%v; want the request again", again)
	}
	again.ID.Take()
	must(t, again.ID.Reject(nil))
	client.want(cch, cm.EventRejected)
}

// An ID that is bound to all devices connects over the one that it is told.
func TestIDBoundToAllConnects(t *testing.T) {
	t.Parallel()
	hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2", "192.0.2.3")
	ch := cm.NewEventChannel(cm.WithDevices(hosts[0].dev, hosts[1].dev))
	t.Cleanup(func() { ch.Close() })
	for i, src := range []netip.Addr{hosts[1].dev.Addr(), {}} {
		id := hosts[0].id(ch, cm.TCP)
		must(t, id.BindAddr(netip.MustParseAddrPort("0.0.0.0:0")))
		port := id.SrcPort()
		must(t, id.ResolveAddr(netip.AddrPortFrom(src, 0), netip.AddrPortFrom(hosts[2].dev.Addr(), 9), 0))
		hosts[0].want(ch, cm.EventAddrResolved)
		if want := netip.AddrPortFrom(hosts[1-i].dev.Addr(), port); id.LocalAddr() != want {
			t.Errorf("from %v: local address %v; want %v", src, id.LocalAddr(), want)
		}
		must(t, id.Close())
	}
}

// The port space of IPoIB is one of datagrams, with ports of its own.
func TestPortSpaceIPoIB(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	l, addr := server.listen(cm.ListenConfig{Space: cm.IPoIB})
	if l.Addr().Network() != "rdma-ipoib" {
		t.Errorf("network %q", l.Addr().Network())
	}
	go func() {
		if req, err := l.Accept(server.context()); err == nil {
			q := server.qp(verbs.UD)
			err := q.Activate(7)
			if err == nil {
				_, err = req.Accept(server.context(), q, cm.AcceptConfig{})
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	d, err := cm.Resolve(client.context(), client.dev, addr, cm.ResolveConfig{Space: cm.IPoIB})
	must(t, err)
	if d.QKey != 7 {
		t.Errorf("Q_Key %d; want 7", d.QKey)
	}
	if _, err := cm.Listen(server.dev, netip.AddrPort{}, cm.ListenConfig{Space: cm.IPoIB, Type: verbs.RC}); err == nil {
		t.Error("IPoIB takes queue pairs of type RC")
	}
}
