package rdmanet

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestListenEverywhere has a network of its own with four addresses. A listener
// without an address is on all but the one that another socket has.
func TestListenEverywhere(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for _, a := range []string{"192.0.2.1/32", "192.0.2.2/32"} {
		testnet.IP(t, "addr add "+a+" dev lo nodad")
	}
	other, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(fmt.Sprintf("192.0.2.2:%d", verbs.UDPPort))))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for network, want := range map[string]string{
		"rdma": "[::]:7471 [127.0.0.1:7471 192.0.2.1:7471 [::1]:7471]", "rdma4": "0.0.0.0:7471 [127.0.0.1:7471 192.0.2.1:7471]",
		"tcp6": "[::]:7471 [[::1]:7471]",
	} {
		ln, err := Listen(network, ":7471")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(ln.Addr(), " ", ln.Addrs()); got != want {
			t.Errorf("%s: on %s", network, got)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				io.Copy(c, c)
				c.Close()
			}
		}()
		for _, a := range append(ln.Addrs(), ln.Addr()) {
			if err := echo(t.Context(), new(Dialer), a.String(), 1); err != nil {
				t.Errorf("%s, %v: %v", network, a, err)
			}
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
}
