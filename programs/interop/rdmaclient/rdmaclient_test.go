package rdmaclient

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func portOf(dev *verbs.Device) netip.AddrPort { return netip.AddrPortFrom(dev.Addr(), DefaultPort) }

func TestOverTheConnectionManager(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]Mode{"plain": Plain, "one way": OneWay, "XRC": XRC} {
		for _, loss := range []float64{0, 0.05} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Seed: 4, Port: fabric.PortConfig{Loss: loss}}})
					const clients = 10
					served := make(chan Result, clients)
					done := make(chan error, 1)
					go func() {
						done <- Serve(t.Context(), a, portOf(a), Config{Mode: mode, Clients: clients, OnClient: func(_ net.Addr, r Result, _ error) { served <- r }})
					}()
					synctest.Wait()
					for range clients {
						res, err := Run(t.Context(), b, portOf(a), Config{Mode: mode})
						if err != nil || res.Sent != 1 || (res.Received == 1) != (mode == Plain) {
							t.Errorf("%+v, %v", res, err)
						}
						if r := <-served; r.Received != 1 {
							t.Errorf("the server has %+v", r)
						}
					}
					if err := <-done; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestServerOutlivesBadClients has clients that connect and leave, and that say
// nothing, before the true one.
func TestServerOutlivesBadClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		done := make(chan error, 1)
		go func() { done <- Serve(t.Context(), a, portOf(a), Config{Clients: 1}) }()
		synctest.Wait()
		testpair.Dial(t, b, portOf(a), cm.TCP).Close()
		silent := testpair.Dial(t, b, portOf(a), cm.TCP)
		defer silent.Close()
		if _, err := Run(t.Context(), b, portOf(a), Config{}); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOtherMode starts the two sides differently.
func TestOtherMode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server, client Mode
		want           string
	}{
		"nobody answers":     {OneWay, Plain, "after 1 messages sent and 0 received: the peer disconnected"},
		"another port space": {Plain, XRC, "no program listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t)
				go Serve(t.Context(), a, portOf(a), Config{Mode: tt.server, Clients: 1})
				synctest.Wait()
				if _, err := Run(t.Context(), b, portOf(a), Config{Mode: tt.client}); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("the client ends with %v", err)
				}
			})
		})
	}
}
