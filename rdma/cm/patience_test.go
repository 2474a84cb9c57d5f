package cm_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rdma/cm"
)

// A side that connects before the other one listens asks again, as long as it
// has been told to.
func TestPatience(t *testing.T) {
	t.Parallel()
	for _, space := range []cm.PortSpace{cm.TCP, cm.UDP} {
		synctest.Test(t, func(t *testing.T) {
			sw := fabric.NewSwitch(fabric.Config{})
			server, client := hostOn(t, sw, "192.0.2.2"), hostOn(t, sw, "192.0.2.1")
			must(t, cm.Start(server.dev)) // which refuses
			sch, cch := server.channel(), client.channel()
			addr := netip.AddrPortFrom(server.dev.Addr(), 7471)
			connect := func(patience time.Duration) {
				id := client.resolved(cch, space, addr)
				client.createQP(id)
				must(t, id.SetOption(cm.WithPatience(patience)))
				must(t, id.Connect(nil))
			}
			waits := func(least, most time.Duration) {
				t.Helper()
				start := time.Now()
				e, err := cch.Get(t.Context())
				must(t, err)
				if took := time.Since(start); e.Err() == nil || took < least || took > most {
					t.Errorf("%v, nothing listens: %v after %v; want a refusal after %v to %v", space, e, took, least, most)
				}
			}
			const most = 5 * time.Millisecond
			connect(0)
			waits(0, most)
			connect(time.Second)
			waits(time.Second, time.Second+200*time.Millisecond)

			connect(time.Second)
			time.Sleep(300 * time.Millisecond) // and was refused several times
			lid := server.id(sch, space)
			must(t, lid.BindAddr(addr))
			must(t, lid.Listen(0))
			start := time.Now()
			id := server.want(sch, cm.EventConnectRequest).ID
			if took := time.Since(start); took > 60*time.Millisecond {
				t.Errorf("%v: the request came %v after somebody listens", space, took)
			}
			server.createQP(id)
			must(t, id.Accept(nil))
			client.want(cch, cm.EventEstablished)
			server.dev.Close()
			client.dev.Close()
		})
	}
}

// A server that listens anew after its first connection, as perftest does,
// gets the request that comes in between from a client that has no patience.
func TestListenAgain(t *testing.T) {
	t.Parallel()
	for _, space := range []cm.PortSpace{cm.TCP, cm.UDP} {
		for _, returns := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				sw := fabric.NewSwitch(fabric.Config{})
				server, client := hostOn(t, sw, "192.0.2.2"), hostOn(t, sw, "192.0.2.1")
				sch, cch := server.channel(), client.channel()
				addr := netip.AddrPortFrom(server.dev.Addr(), 7471)
				listener := func() *cm.ID {
					lid := server.id(sch, space)
					must(t, lid.SetOption(cm.WithPatience(time.Second)))
					must(t, lid.BindAddr(addr))
					must(t, lid.Listen(0))
					return lid
				}
				must(t, listener().Close())
				id := client.resolved(cch, space, addr)
				client.createQP(id)
				must(t, id.Connect(nil))
				time.Sleep(300 * time.Millisecond)
				if returns {
					listener()
					asked := server.want(sch, cm.EventConnectRequest).ID
					server.createQP(asked)
					must(t, asked.Accept(nil))
					client.want(cch, cm.EventEstablished)
				} else if e, err := cch.Get(t.Context()); err != nil || e.Err() == nil {
					t.Errorf("%v, nothing listens again: %v, %v; want a refusal", space, e, err)
				}
				server.dev.Close()
				client.dev.Close()
			})
		}
	}
}
