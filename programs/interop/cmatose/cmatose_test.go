package cmatose

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func portOf(dev *verbs.Device) netip.AddrPort { return netip.AddrPortFrom(dev.Addr(), DefaultPort) }

func TestOverTheConnectionManager(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg     Config
		network fabric.PortConfig
	}{
		"one":       {cfg: Config{Connections: 1}},
		"many":      {cfg: Config{Connections: 50, Size: 3000}},
		"IB space":  {cfg: Config{Connections: 2, IBSpace: true, AckTimeout: 12}},
		"with loss": {cfg: Config{Connections: 10, Size: 3000, Messages: 50}, network: fabric.PortConfig{Loss: 0.02}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Seed: 2, Port: tt.network}})
				served := make(chan Result, tt.cfg.Connections)
				server := tt.cfg
				server.Clients = tt.cfg.Connections
				server.OnClient = func(_ net.Addr, r Result, err error) {
					if err != nil {
						t.Errorf("a client: %v", err)
					}
					served <- r
				}
				done := make(chan error, 1)
				go func() { done <- Serve(t.Context(), a, portOf(a), server) }()
				synctest.Wait()
				res, err := Run(t.Context(), b, portOf(a), tt.cfg)
				if server := <-done; err != nil || server != nil {
					t.Fatalf("client %v, server %v", err, server)
				}
				var all Result
				for range tt.cfg.Connections {
					all.add(<-served)
				}
				n := tt.cfg.Connections * max(tt.cfg.Messages, DefaultMessages)
				if res.Sent != n || res.Received != n || all.Sent != n || all.Received != n || all.Connections != tt.cfg.Connections {
					t.Errorf("client %+v, server %+v", res, all)
				}
			})
		})
	}
}

// TestServerOutlivesBadClients has a client that connects and leaves before the
// true one.
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

// TestServerThatDoesNotDisconnect is a server of another kind.
func TestServerThatDoesNotDisconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ln, err := cm.Listen(a, portOf(a), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		done := make(chan error, 1)
		go func() {
			_, err := Run(t.Context(), b, portOf(a), Config{})
			done <- err
		}()
		r, err := ln.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, _ := Config{}.withDefaults(a)
		s, err := newSide(a, 0, c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.admit = func() error { return nil }
		if err := s.ready(); err != nil {
			t.Fatal(err)
		}
		conn, err := r.Accept(t.Context(), s.QP, cm.AcceptConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		s.Begin(t.Context(), "messages", conn, 0)
		if err := s.runServer(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, interop.ErrNoProgress) || !strings.Contains(err.Error(), "does not disconnect") {
			t.Errorf("the client ends with %v", err)
		}
	})
}

// TestTerms looks at what a client asks for: what the original does.
func TestTerms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ln, err := cm.Listen(a, portOf(a), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go Run(t.Context(), b, portOf(a), Config{})
		r, err := ln.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := r.Params()
		if p.RetryCount != 5 || p.RNRRetry != 0 || p.ResponderResources != 1 || p.InitiatorDepth != 1 || p.AckTimeout != 17 {
			t.Errorf("the client asks for %+v", p)
		}
		r.Reject(nil)
	})
}

// TestRejected dials a server that takes no client.
func TestRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ln, err := cm.Listen(a, portOf(a), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			for {
				r, err := ln.Accept(t.Context())
				if err != nil {
					return
				}
				r.Reject([]byte("no"))
			}
		}()
		var rejected *cm.RejectedError
		if _, err := Run(t.Context(), b, portOf(a), Config{Connections: 3}); !errors.As(err, &rejected) || rejected.Reason != cm.ReasonConsumer {
			t.Errorf("the client ends with %v", err)
		}
	})
}
