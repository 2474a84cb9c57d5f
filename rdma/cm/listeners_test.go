package cm_test

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
)

// One Accept takes the requests for each of several devices, also after one of
// them is closed. Any number of Accepts wait.
func TestListenAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hosts := network(t, fabric.Config{}, "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.9")
		servers, client := hosts[:3], hosts[3]
		var devs []*verbs.Device
		for _, s := range servers {
			devs = append(devs, s.dev)
		}
		ls, err := cm.ListenAll(devs, netip.AddrPortFrom(netip.IPv4Unspecified(), 0), cm.ListenConfig{})
		must(t, err)
		port := ls.Addr().(*cm.Addr).Port()
		if got, want := fmt.Sprint(ls.Addr(), ls.Addrs()), fmt.Sprintf("0.0.0.0:%d [192.0.2.1:%[1]d 192.0.2.2:%[1]d 192.0.2.3:%[1]d]", port); got != want {
			t.Errorf("on %s", got)
		}
		accepted := make(chan error)
		serve := func() {
			r, err := ls.Accept(t.Context())
			if err == nil {
				for _, s := range servers {
					if s.dev == r.Device() {
						_, err = r.Accept(t.Context(), s.qp(verbs.RC), cm.AcceptConfig{})
					}
				}
			}
			accepted <- err
		}
		dial := func(servers []*host) {
			for range servers {
				go serve()
			}
			for _, s := range servers {
				q := client.qp(verbs.RC)
				go func() {
					_, err := cm.Dial(client.context(), q, netip.AddrPortFrom(s.dev.Addr(), port), cm.DialConfig{})
					if err != nil {
						t.Error(err)
					}
				}()
			}
			for range servers {
				must(t, <-accepted)
			}
		}
		dial(servers)
		synctest.Wait()
		servers[0].dev.Close()
		dial(servers[1:])
		synctest.Wait()

		go serve()
		go serve()
		synctest.Wait()
		must(t, ls.Close())
		wantErr(t, "accept", <-accepted, cm.ErrClosed)
		wantErr(t, "accept", <-accepted, cm.ErrClosed)
		must(t, ls.Close())
		l, err := cm.Listen(servers[1].dev, netip.AddrPortFrom(netip.Addr{}, port), cm.ListenConfig{})
		must(t, err)
		if _, err := cm.ListenAll(devs[1:], netip.AddrPortFrom(netip.Addr{}, port), cm.ListenConfig{}); err == nil {
			t.Error("a port that is in use on one device is taken on another")
		}
		must(t, l.Close())
		ls, err = cm.ListenAll(devs[1:], netip.AddrPortFrom(netip.Addr{}, port), cm.ListenConfig{})
		must(t, err)
		must(t, ls.Close())
		for _, none := range [][]*verbs.Device{nil, {nil}, {devs[1], nil}} {
			if _, err := cm.ListenAll(none, netip.AddrPort{}, cm.ListenConfig{}); err == nil {
				t.Errorf("%v is enough", none)
			}
		}
		for _, h := range hosts {
			h.dev.Close()
		}
	})
}
