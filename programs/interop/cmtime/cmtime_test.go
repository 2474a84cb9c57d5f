package cmtime

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func portOf(dev *verbs.Device) netip.AddrPort { return netip.AddrPortFrom(dev.Addr(), DefaultPort) }

func TestBothRoles(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg     Config
		network fabric.PortConfig
	}{
		"defaults":  {network: fabric.PortConfig{Delay: time.Millisecond}},
		"one":       {cfg: Config{Connections: 1, Bind: true, TrafficClass: 32}, network: fabric.PortConfig{Delay: time.Millisecond}},
		"with loss": {cfg: Config{Connections: 50}, network: fabric.PortConfig{Delay: time.Millisecond, Loss: 0.02}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Seed: 6, Port: tt.network}})
				n := max(tt.cfg.Connections, 1)
				if tt.cfg.Connections == 0 {
					n = DefaultConnections
				}
				done := make(chan error, 1)
				go func() {
					done <- Serve(t.Context(), a, portOf(a), Config{Clients: n, OnClient: func(from net.Addr, _ time.Duration, err error) {
						if err != nil {
							t.Errorf("connection %v: %v", from, err)
						}
					}})
				}()
				synctest.Wait()
				var steps []Step
				tt.cfg.OnStep = func(s Step) { steps = append(steps, s) }
				res, err := Run(t.Context(), b, portOf(a), tt.cfg)
				if server := <-done; err != nil || server != nil {
					t.Fatalf("client %v, server %v", err, server)
				}
				want := slices.Clone(Steps)
				if !tt.cfg.Bind {
					want = slices.DeleteFunc(want, func(s Step) bool { return s == BindAddr })
				}
				if res.Connections != n || !slices.Equal(steps, want) {
					t.Errorf("%d connections, steps %v", res.Connections, steps)
				}
				// Virtual time: a round trip is twice the
				// delay.
				c, d := res.Steps[Connect], res.Steps[Disconnect]
				if c.Min < 2*time.Millisecond || c.Max < c.Min || c.Total < c.Max || d.Min < 2*time.Millisecond || res.Steps[CreateID].Total != 0 {
					t.Errorf("the times are %+v", res.Steps)
				}
				if got := res.PerConnection(Connect); got != c.Total/time.Duration(n) {
					t.Errorf("a connection takes %v", got)
				}
			})
		})
	}
}

// TestServerOutlivesBadClients has clients that never end their connection, and
// one that is rejected because of them.
func TestServerOutlivesBadClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ended := make(chan error, 4)
		done := make(chan error, 1)
		go func() {
			done <- Serve(t.Context(), a, portOf(a), Config{Clients: 1, AtOnce: 2, OnClient: func(_ net.Addr, _ time.Duration, err error) { ended <- err }})
		}()
		synctest.Wait()
		for range 2 {
			defer testpair.Dial(t, b, portOf(a), cm.TCP).Close()
		}
		synctest.Wait() // the server has them
		_, err := Run(t.Context(), b, portOf(a), Config{Connections: 1})
		if err == nil || !strings.Contains(err.Error(), "connect to 192.0.2.1:7471") {
			t.Errorf("the third connection ends with %v", err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "too many clients") {
			t.Errorf("the server rejected for %v", err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, interop.ErrNoProgress) {
				t.Errorf("a connection ends with %v", err)
			}
		}
		if _, err := Run(t.Context(), b, portOf(a), Config{Connections: 1}); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestServerThatDisconnects ends the connections that a client still makes.
func TestServerThatDisconnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ln, err := cm.Listen(a, portOf(a), cm.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		s, err := newServer(a, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		go func() {
			r, err := ln.Accept(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			qp, err := s.pd.CreateQP(verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
			if err != nil {
				t.Error(err)
				return
			}
			conn, err := r.Accept(t.Context(), qp, cm.AcceptConfig{})
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
			r, err = ln.Accept(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			r.Reject(nil)
		}()
		if _, err := Run(t.Context(), b, portOf(a), Config{Connections: 2}); err == nil || !strings.Contains(err.Error(), "connect to") {
			t.Errorf("the client ends with %v", err)
		}
	})
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t)
		a.Port.Cut()
		_, err := Run(t.Context(), b.Dev, portOf(a.Dev), Config{Connections: 3})
		if err == nil {
			t.Error("it does not fail")
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	dev, _ := verbstest.Devices(t)
	for want, c := range map[string]Config{
		"number of connections": {Connections: 1 << 20},
		"number of retries":     {Retries: 8},
		"negative":              {Timeout: -1},
	} {
		var ce *interop.ConfigError
		if err := c.Check(dev); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
}
