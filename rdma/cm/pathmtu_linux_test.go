package cm_test

import (
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// socketHost opens a device on sockets.
func socketHost(t *testing.T, addr string) *host {
	t.Helper()
	dev, err := verbs.OpenAddr(netip.MustParseAddr(addr), verbs.Config{})
	must(t, err)
	return newHostOn(t, dev)
}

// A server on an interface of MTU 1500 is reached from lo of its own host,
// which has 65536, and from the other end of its cable, which has 9000; and the
// other way around.
func TestPathMTUOverSockets(t *testing.T) {
	t.Parallel()
	if !testnet.Isolated(t) {
		return
	}
	testnet.Veth(t, "near", "far", "1500")
	testnet.IP(t, "addr add 10.77.0.1/24 dev near")
	near, lo := socketHost(t, "10.77.0.1"), socketHost(t, "127.0.0.2")
	agree := func(what string, client, server *host) {
		for name, way := range map[string]dialled{"native": dials(verbs.RC, cm.DialConfig{}), "other": dials(verbs.RC, cm.DialConfig{NoECE: true})} {
			a, b := way(t, client, server)
			if x, y := a.Query().PathMTU, b.Query().PathMTU; x != verbs.MTU1024 || y != verbs.MTU1024 {
				t.Errorf("%s, %s: path MTUs %v and %v", what, name, x, y)
			}
			client.send(a, what)
			if m := server.message(); m != what {
				t.Errorf("%s: the server got %q", what, m)
			}
			client.next() // the send has completed
		}
	}
	agree("from lo", lo, near)
	agree("to lo", near, lo)
	var far *host
	testnet.Elsewhere(t, "far", "near", func() {
		testnet.IP(t, "link set far mtu 9000")
		testnet.IP(t, "addr add 10.77.0.2/24 dev far")
		far = socketHost(t, "10.77.0.2")
		if m := far.dev.PathMTU(netip.Addr{}); m != verbs.MTU4096 {
			t.Errorf("the far end has a path MTU of %v", m)
		}
		agree("from a jumbo host", far, near)
		agree("to a jumbo host", near, far)
	})
}
