package rdma_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/rdma"
)

// A program that exports memory learns which client asked for which region, and
// whether the client got it.
func TestOnRegion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		lc := rdma.ListenConfig{OnRegion: func(client netip.Addr, name string, granted bool) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprint(client, " ", name, " ", granted))
		}}
		lc.Export("open", rdma.Region{Size: 64})
		lc.Export("secret", rdma.Region{Size: 64, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.200/32")}})
		l, d := listener(t, lc)
		conns := make(chan *rdma.Conn, 1)
		go func() {
			c, err := l.Accept(t.Context())
			if err != nil {
				t.Error(err)
			}
			conns <- c
		}()
		c, err := d.Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		theirs := <-conns
		if theirs == nil {
			t.FailNow()
		}
		for _, name := range []string{"open", "secret", "none"} {
			c.Region(t.Context(), name) // what it returns is not the point
		}
		if _, err := c.Regions(t.Context()); err != nil { // this asks for no region
			t.Fatal(err)
		}
		client := d.Device.Addr()
		want := fmt.Sprintf("[%v open true %v secret false %v none false]", client, client, client)
		mu.Lock()
		defer mu.Unlock()
		if got := fmt.Sprint(seen); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if q := l.Device().QP(theirs.QPN()); q == nil || q.Query().DestQPN != c.QPN() {
			t.Errorf("queue pair %v of the listener, %v of the client", theirs.QPN(), c.QPN())
		}
	})
}
