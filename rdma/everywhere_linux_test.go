package rdma

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testnet"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestListenEverywhere has a network of its own with five addresses. A listener
// without an address is on all but the one that another socket has, and its
// regions are the same memory on each.
func TestListenEverywhere(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	for _, a := range []string{"192.0.2.1/32", "192.0.2.2/32", "2001:db8::1/128"} {
		testnet.IP(t, "addr add "+a+" dev lo nodad")
	}
	occupy(t, "192.0.2.2")
	l := must1[*Listener](t)(Listen(t.Context(), ":7471"))
	defer l.Close()
	if got := l.Addr().String(); got != "[::]:7471" {
		t.Errorf("the address is %s", got)
	}
	if got := fmt.Sprint(l.Addrs()); got != "[127.0.0.1:7471 192.0.2.1:7471 [::1]:7471 [2001:db8::1]:7471]" || len(l.Devices()) != 4 {
		t.Errorf("on %s", got)
	}
	board := must1[*verbs.MR](t)(l.Export("board", Region{Size: 4096, Writable: true}))
	var clients []*Conn
	for i, a := range append([]string{"localhost:7471", ":7471", l.Addr().String()}, texts(l.Addrs())...) {
		accepted := make(chan *Conn, 1)
		go func() {
			c, err := l.Accept(testContext(t))
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		c := must1[*Conn](t)(Dial(testContext(t), a))
		defer c.Close()
		clients = append(clients, c)
		r := must1[*RemoteRegion](t)(c.Region(testContext(t), "board"))
		if old := must1[uint64](t)(r.FetchAdd(testContext(t), 8, 1)); old != uint64(i) {
			t.Errorf("%s: the counter was %d after %d others", a, old, i)
		}
		<-accepted
	}
	if board.Bytes()[8] != byte(len(clients)) {
		t.Errorf("the memory has %d", board.Bytes()[8])
	}
	if _, err := l.Export("board", Region{Size: 4096}); !errors.Is(err, ErrExported) {
		t.Errorf("exported twice: %v", err)
	}
	must(t, l.Unexport("board"))
	for _, c := range clients {
		if _, err := c.Region(testContext(t), "board"); !errors.Is(err, ErrUnknownRegion) {
			t.Errorf("from %v: %v", c.RemoteAddr(), err)
		}
	}
	must(t, l.Close())
	for _, d := range l.doors {
		if mapped(d.hub) {
			t.Error("the memory of messages is there after Close")
		}
	}
}

// Others have the port on every address.
func TestListenNowhere(t *testing.T) {
	if !testnet.Isolated(t) {
		return
	}
	occupy(t, "127.0.0.1")
	occupy(t, "::1")
	_, err := Listen(t.Context(), ":7471")
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "none of 2 addresses can be had") {
		t.Errorf("nothing is left: %v", err)
	}
	if _, err := Listen(t.Context(), "localhost:7471"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("localhost: %v", err)
	}
}

func occupy(t *testing.T, addr string) {
	c := must1[*net.UDPConn](t)(net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), verbs.UDPPort))))
	t.Cleanup(func() { c.Close() })
}

func texts(addrs []net.Addr) (list []string) {
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}
