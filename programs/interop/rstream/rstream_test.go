package rstream

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestSeries compares with the tests that the original runs.
func TestSeries(t *testing.T) {
	t.Parallel()
	got := (&Config{}).series()
	want := [][]Test{
		{{"64_lat", 64, 1, 100000}, {"4k_lat", 4096, 1, 10000}, {"64k_lat", 65536, 1, 1000}, {"1m_lat", 1 << 20, 1, 100}},
		{{"64_bw", 64, 100000, 1}, {"4k_bw", 4096, 10000, 1}, {"64k_bw", 65536, 1000, 1}, {"1m_bw", 1 << 20, 100, 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the series are %v", got)
	}
	all := (&Config{All: true}).series()[0]
	if n := len(all); n != 33 || all[1].Size != 128 || all[2].Size != 192 || all[n-1].Size != 6<<20 || all[n-1].Name != "6m_lat" {
		t.Errorf("all sizes are %v", all)
	}
	if got := (&Config{Size: 5, Verify: true}).series(); !reflect.DeepEqual(got, [][]Test{{{"custom", 5, 1000, 1000}}}) {
		t.Errorf("with a size: %v", got)
	}
}

// The original of a kernel guest prints so.
func TestShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{
		64: "64", 4096: "4k", 5000: "4.8k", 100000: "97k", 2000000: "1.9m", 10000000: "9.5m", 1 << 20: "1m",
	} {
		if got := Short(n); got != want {
			t.Errorf("%d is %q, expected %q", n, got, want)
		}
	}
}

// run runs client and server on two devices.
func run(t *testing.T, client, server Config) (results, served []Result, clientErr, serverErr error) {
	a, b := verbstest.Devices(t)
	at := netip.AddrPortFrom(a.Addr(), DefaultPort)
	server.OnResult = func(_ string, r Result) { served = append(served, r) }
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- Serve(ctx, a, at, server) }()
	for {
		results, clientErr = Run(ctx, b, at, client)
		if clientErr == nil || !strings.Contains(clientErr.Error(), "no program listens") {
			break
		}
	}
	if clientErr != nil {
		cancel()
	}
	return results, served, clientErr, <-done
}

func TestCustom(t *testing.T) {
	t.Parallel()
	c := Config{Size: 5000, Count: 7, Iterations: 11, Verify: true, Clients: 1, IdleTimeout: time.Minute}
	results, served, err1, err2 := run(t, c, c)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if len(results) != 1 || len(served) != 1 || results[0].Bytes() != 2*5000*7*11 {
		t.Errorf("results %v, %v", results, served)
	}
}

func TestBothSeries(t *testing.T) {
	t.Parallel()
	c := Config{Clients: 1, IdleTimeout: time.Minute, fewer: 100}
	results, served, err1, err2 := run(t, c, c)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if len(results) != 8 || len(served) != 8 {
		t.Errorf("results %v, %v", results, served)
	}
}

// Clients that never come for their second series do not keep others from
// theirs.
func TestForgottenClients(t *testing.T) {
	t.Parallel()
	s := &server{next: map[netip.Addr]int{}}
	from := netip.MustParseAddr("192.0.2.0")
	for range 2 * maxRemembered {
		from = from.Next()
		s.remember(from, 1)
	}
	if s.next[from] != 1 || len(s.next) > maxRemembered {
		t.Errorf("the last client comes for series %d, of %d clients that are known", s.next[from], len(s.next))
	}
}

// Two sides that were started differently say so.
func TestDifferentFlags(t *testing.T) {
	t.Parallel()
	short := Config{Size: 100, Count: 1, Iterations: 1, Clients: 1}
	long := Config{Size: 200, Count: 1, Iterations: 1, Clients: 1}
	verify := Config{Size: 100, Count: 1, Iterations: 1, Clients: 1, Verify: true}
	if _, _, _, err := run(t, short, verify); !errors.Is(err, ErrMismatch) {
		t.Errorf("only the server verifies: %v", err)
	}
	short.IdleTimeout, long.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond
	_, _, err1, err2 := run(t, short, long)
	if err := errors.Join(err1, err2); !errors.Is(err, interop.ErrNoProgress) && !errors.Is(err, interop.ErrDisconnected) {
		t.Errorf("different sizes: %v; %v", err1, err2)
	}
}

// A server whose client is silent gives up.
func TestSilentClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, q := verbstest.NewPair(t)
		at := netip.AddrPortFrom(p.Dev.Addr(), DefaultPort)
		done := make(chan error, 1)
		go func() {
			done <- Serve(t.Context(), p.Dev, at, Config{Size: 1, Clients: 1, IdleTimeout: time.Second})
		}()
		synctest.Wait()
		go Run(t.Context(), q.Dev, at, Config{Size: 100000, IdleTimeout: 5 * time.Second})
		time.AfterFunc(100*time.Microsecond, q.Port.Cut)
		if err := <-done; err == nil {
			t.Error("no error")
		}
		time.Sleep(2 * time.Minute) // of virtual time
	})
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"the size is -1":      {Size: -1},
		"all sizes, and a si": {All: true, Size: 5},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}
