package rping

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

func portOf(dev *verbs.Device) netip.AddrPort { return netip.AddrPortFrom(dev.Addr(), DefaultPort) }

// TestOverTheConnectionManager runs servers and clients.
func TestOverTheConnectionManager(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		client  Config
		clients int
		network fabric.PortConfig
	}{
		"one":       {client: Config{Count: 20, Validate: true}, clients: 1},
		"many":      {client: Config{Count: 20, Validate: true, Size: 5000}, clients: 20},
		"with loss": {client: Config{Count: 50, Validate: true, Size: 5000}, clients: 3, network: fabric.PortConfig{Loss: 0.02}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, b := verbstest.Devices(t, verbstest.Config{Network: fabric.Config{Seed: 1, Port: tt.network}})
				served := make(chan Result, tt.clients)
				done := make(chan error, 1)
				go func() {
					done <- Serve(t.Context(), a, portOf(a), Config{Clients: tt.clients, OnClient: func(from net.Addr, r Result, err error) {
						if err != nil || from.(*cm.Addr).Addr() != b.Addr() {
							t.Errorf("client %v: %v", from, err)
						}
						served <- r
					}})
				}()
				synctest.Wait()
				err := link.All(t.Context(), tt.clients, func(ctx context.Context, _ int) error {
					res, err := Run(ctx, b, portOf(a), tt.client)
					if res.Pings != tt.client.Count {
						t.Errorf("%+v", res)
					}
					return err
				})
				if server := <-done; err != nil || server != nil {
					t.Errorf("clients %v, server %v", err, server)
				}
				for range tt.clients {
					if r := <-served; r.Pings != tt.client.Count {
						t.Errorf("the server has %+v", r)
					}
				}
			})
		})
	}
}

// TestServerOutlivesBadClients meets a server with clients that say nothing,
// that leave, and that were never there, and then with a true one.
func TestServerOutlivesBadClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ended := make(chan error, 3)
		done := make(chan error, 1)
		go func() {
			done <- Serve(t.Context(), a, portOf(a), Config{Clients: 1, OnClient: func(_ net.Addr, _ Result, err error) { ended <- err }})
		}()
		synctest.Wait()
		silent := testpair.Dial(t, b, portOf(a), cm.TCP)
		defer silent.Close()
		testpair.Dial(t, b, portOf(a), cm.TCP).Close()
		synctest.Wait()
		if _, err := Run(t.Context(), b, portOf(a), Config{Count: 3}); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		failed := 0
		for range 3 {
			if err := <-ended; err != nil {
				failed++
			}
		}
		if failed != 1 { // the silent one: another client was first
			t.Errorf("%d clients failed", failed)
		}
	})
}

// TestNobodyListens dials a host without a server, and one that is not there.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t)
		_, err := Run(t.Context(), b.Dev, portOf(a.Dev), Config{Count: 1})
		if err == nil || !strings.Contains(err.Error(), "there") {
			t.Errorf("it ends with %v", err)
		}
		a.Port.Cut()
		_, err = Run(t.Context(), b.Dev, portOf(a.Dev), Config{Count: 1})
		if !errors.Is(err, cm.ErrUnreachable) || !strings.Contains(err.Error(), "is there a RoCE device") {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestCrowdedServerRejects has more clients than the server takes at once.
func TestCrowdedServerRejects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		ended := make(chan error, 3)
		go func() {
			done <- Serve(ctx, a, portOf(a), Config{AtOnce: 1, OnClient: func(_ net.Addr, _ Result, err error) { ended <- err }})
		}()
		synctest.Wait()
		silent := testpair.Dial(t, b, portOf(a), cm.TCP)
		synctest.Wait() // the server has it
		_, err := Run(t.Context(), b, portOf(a), Config{Count: 1})
		var rejected *cm.RejectedError
		if !errors.As(err, &rejected) || rejected.Reason != cm.ReasonNoResources {
			t.Errorf("the second client ends with %v", err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "too many clients") {
			t.Errorf("the server rejected for %v", err)
		}
		silent.Close()
		<-ended
		if _, err := Run(t.Context(), b, portOf(a), Config{Count: 1}); err != nil {
			t.Errorf("a later client ends with %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the server ends with %v", err)
		}
	})
}

// TestServerFreesWhatIsSilent has a client that is cut off in the middle: its
// place is free after the idle timeout.
func TestServerFreesWhatIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t)
		ended := make(chan error, 2)
		done := make(chan error, 1)
		go func() {
			done <- Serve(t.Context(), a.Dev, portOf(a.Dev), Config{Clients: 1, IdleTimeout: 10 * time.Second, OnClient: func(_ net.Addr, _ Result, err error) { ended <- err }})
		}()
		synctest.Wait()
		pings := 0
		_, err := Run(t.Context(), b.Dev, portOf(a.Dev), Config{IdleTimeout: 10 * time.Second, OnPing: func([]byte) {
			if pings++; pings == 5 {
				b.Port.Cut()
			}
		}})
		if err == nil {
			t.Error("the client does not fail")
		}
		if err := <-ended; err == nil {
			t.Error("the server does not say that the client failed")
		}
		if err := <-done; err == nil || !errors.Is(err, interop.ErrNoProgress) && !errors.Is(err, verbs.StatusRetryExcErr) {
			t.Errorf("the server ends with %v", err)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"invalid size 26 (valid range is 27 to 65536)": {Size: 26},
		"invalid size 65537":                           {Size: 65537},
		"invalid count -1":                             {Count: -1},
		"negative":                                     {Clients: -1},
	} {
		var ce *interop.ConfigError
		if err := c.Check(); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
}
