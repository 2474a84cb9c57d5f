package udaddy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func portOf(dev *verbs.Device) netip.AddrPort { return netip.AddrPortFrom(dev.Addr(), DefaultPort) }

func TestOverTheConnectionManager(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"one":  {Connections: 1},
		"many": {Connections: 50, Size: 3000, Messages: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t)
				server := cfg
				server.Clients = cfg.Connections
				served := make(chan Result, cfg.Connections)
				server.OnClient = func(_ net.Addr, r Result, err error) {
					if err != nil {
						t.Errorf("a client: %v", err)
					}
					served <- r
				}
				done := make(chan error, 1)
				go func() { done <- Serve(t.Context(), a, portOf(a), server) }()
				synctest.Wait()
				res, err := Run(t.Context(), b, portOf(a), cfg)
				if server := <-done; err != nil || server != nil {
					t.Fatalf("client %v, server %v", err, server)
				}
				var all Result
				for range cfg.Connections {
					all.add(<-served)
				}
				n := cfg.Connections * max(cfg.Messages, DefaultMessages)
				if res.Sent != n || res.Received != n || all.Sent != n || all.Received != n {
					t.Errorf("client %+v, server %+v", res, all)
				}
			})
		})
	}
}

// TestServerOutlivesSilentClients asks a server for queue pairs and sends
// nothing there. It gives them back, and serves the true client.
func TestServerOutlivesSilentClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 3)
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, a, portOf(a), Config{AtOnce: 2, OnClient: func(_ net.Addr, _ Result, err error) { ended <- err }})
		}()
		synctest.Wait()
		for range 2 {
			if _, err := cm.Resolve(t.Context(), b, portOf(a), cm.ResolveConfig{}); err != nil {
				t.Fatal(err)
			}
		}
		var refused *cm.StatusError
		if _, err := Run(t.Context(), b, portOf(a), Config{}); !errors.As(err, &refused) || refused.Status != 2 {
			t.Errorf("the third client ends with %v", err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "too many clients") {
			t.Errorf("the server refused for %v", err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, ErrLost) {
				t.Errorf("a silent client ends with %v", err)
			}
		}
		if _, err := Run(t.Context(), b, portOf(a), Config{}); err != nil {
			t.Errorf("the true client ends with %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the server ends with %v", err)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ln, err := cm.Listen(a, netip.AddrPortFrom(a.Addr(), 1), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if _, err := Run(t.Context(), b, portOf(a), Config{}); err == nil || !strings.Contains(err.Error(), "no program listens there") {
			t.Errorf("it ends with %v", err)
		}
	})
}
