package perftest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// TestBinaryAddressIsByteExact compares with what ib_write_bw -z sends.
func TestBinaryAddressIsByteExact(t *testing.T) {
	t.Parallel()
	text := "00000000" + "00000001" + "0000009c" + "00f8d5ed" + "00002c7f" + "00000000" + "0000558e7f008000" + "00000000000000000000ffffc6120004" + "00000000" + "00000001"
	want, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	a := Address{OutReads: 1, QPN: 0x9c, PSN: 0xf8d5ed, RKey: 0x2c7f, VAddr: 0x558e7f008000, GID: interop.GIDOf(netip.MustParseAddr("198.18.0.4"))}
	if got := a.appendBinary(nil); !bytes.Equal(got, want) || len(got) != binaryLen {
		t.Errorf("the address is %x, expected %x", got, want)
	}
	if got, err := parseBinary("", want); err != nil || got != a {
		t.Errorf("parsed %+v, %v", got, err)
	}
	for _, at := range []int{0, 4, 8, 12} { // more than the numbers have bits
		b := bytes.Clone(want)
		b[at] = 1
		if _, err := parseBinary("", b); err == nil {
			t.Errorf("%x is accepted", b)
		}
	}
}

// bothByCM runs the two roles against each other.
func bothByCM(t *testing.T, server, client Config, network ...verbstest.Config) (s, c testpair.Outcome[[]Result]) {
	t.Helper()
	a, b := verbstest.Devices(t, network...)
	at := netip.AddrPortFrom(a.Addr(), interop.DefaultPort)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Res, s.Err = ServeCM(t.Context(), a, at, server)
	}()
	c.Res, c.Err = dialUntilThere(t.Context(), b, at, client)
	<-done
	return s, c
}

// dialUntilThere runs a client, and again until the server listens.
func dialUntilThere(ctx context.Context, dev *verbs.Device, at netip.AddrPort, c Config) ([]Result, error) {
	for {
		res, err := RunCM(ctx, dev, at, c)
		var rejected *cm.RejectedError
		if !errors.As(err, &rejected) || rejected.Reason != cm.ReasonInvalidService {
			return res, err
		}
	}
}

func TestOverTheConnectionManager(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"write_bw":            {Test: Test{Write, Bandwidth}, Iterations: 200},
		"write_bw, 4 QPs":     {Test: Test{Write, Bandwidth}, Iterations: 100, QPs: 4, Size: 100},
		"read_bw":             {Test: Test{Read, Bandwidth}, Iterations: 100, QPs: 2},
		"send_bw":             {Test: Test{Send, Bandwidth}, Iterations: 200},
		"send_bw, both ways":  {Test: Test{Send, Bandwidth}, Iterations: 100, Bidirectional: true},
		"send_bw, shared":     {Test: Test{Send, Bandwidth}, Iterations: 100, QPs: 3, SharedReceives: true},
		"atomic_bw":           {Test: Test{Atomic, Bandwidth}, Iterations: 100},
		"write_bw, all sizes": {Test: Test{Write, Bandwidth}, Iterations: 5, AllSizes: true},
		"send_lat":            {Test: Test{Send, Latency}, Iterations: 50},
		"write_lat":           {Test: Test{Write, Latency}, Iterations: 50},
		"read_lat":            {Test: Test{Read, Latency}, Iterations: 50},
		"atomic_lat":          {Test: Test{Atomic, Latency}, Iterations: 50},
	} {
		for use, what := range map[CM]string{CMControl: "control", CMAll: "all"} {
			for _, plain := range []bool{false, true} {
				t.Run(what+"/"+name+map[bool]string{true: ", as the originals"}[plain], func(t *testing.T) {
					t.Parallel()
					cfg := cfg // of this subtest alone
					cfg.CM, cfg.plain = use, plain
					s, c := bothByCM(t, cfg, cfg)
					if s.Err != nil || c.Err != nil {
						t.Fatalf("server %v, client %v", s.Err, c.Err)
					}
					if len(c.Res) == 0 {
						t.Error("the client has no result")
					}
				})
			}
		}
	}
}

func TestOverTheConnectionManagerWithLoss(t *testing.T) {
	t.Parallel()
	cfg := Config{Test: Test{Send, Bandwidth}, Iterations: 200, QPs: 2, CM: CMAll, RetryCount: verbs.Set(6)}
	s, c := bothByCM(t, cfg, cfg, verbstest.Config{Network: fabric.Config{Seed: 8, Port: fabric.PortConfig{Loss: 0.02}}})
	if s.Err != nil || c.Err != nil {
		t.Fatalf("server %v, client %v", s.Err, c.Err)
	}
}

// TestCMServerOutlivesBadClients has clients that connect and say nothing, that
// leave, and that are of another kind, before the true one.
func TestCMServerOutlivesBadClients(t *testing.T) {
	t.Parallel()
	for use, what := range map[CM]string{CMControl: "control", CMAll: "all"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, b := verbstest.Devices(t)
			at := netip.AddrPortFrom(a.Addr(), interop.DefaultPort)
			refused := make(chan error, 10)
			cfg := Config{Test: Test{Write, Bandwidth}, Iterations: 50, CM: use}
			server := cfg
			server.OnRefused = func(_ net.Addr, why error) { refused <- why }
			done := make(chan error, 1)
			go func() {
				_, err := ServeCM(t.Context(), a, at, server)
				done <- err
			}()
			other := cfg
			other.CM = CMControl + CMAll - use
			other.plain = true
			if _, err := dialUntilThere(t.Context(), b, at, other); err == nil {
				t.Error("a client of another kind does not fail")
			}
			if why := <-refused; !strings.Contains(why.Error(), "-R") {
				t.Errorf("it is refused with %v", why)
			}
			testpair.Dial(t, b, at, cm.TCP).Close() // the server need not have seen it
			silent := testpair.Dial(t, b, at, cm.TCP)
			defer silent.Close()
			if _, err := RunCM(t.Context(), b, at, cfg); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSilentCMServer dials a server that accepts and says nothing, and one that
// never answers.
func TestSilentCMServer(t *testing.T) {
	t.Parallel()
	a, b := verbstest.NewPair(t)
	at := netip.AddrPortFrom(a.Dev.Addr(), interop.DefaultPort)
	ln, err := cm.Listen(a.Dev, at, cm.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		r, err := ln.Accept(t.Context())
		if err != nil {
			return
		}
		qp, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
		if err == nil {
			r.Accept(t.Context(), qp, cm.AcceptConfig{})
		}
	}()
	cfg := Config{Test: Test{Write, Bandwidth}, CM: CMControl, HandshakeTimeout: 100 * time.Millisecond}
	if _, err := RunCM(t.Context(), b.Dev, at, cfg); err == nil || !strings.Contains(err.Error(), "no answer within 100ms") {
		t.Errorf("the client of a silent server ends with %v", err)
	}
	if _, err := RunCM(t.Context(), b.Dev, at, cfg); err == nil || !strings.Contains(err.Error(), "no answer within 100ms") {
		t.Errorf("the client of nobody ends with %v", err)
	}
}

// TestLateListener plays a server that listens for the connections of the queue
// pairs only after it has said that it is ready, as the originals do.
func TestLateListener(t *testing.T) {
	t.Parallel()
	a, b := verbstest.NewPair(t)
	at := netip.AddrPortFrom(a.Dev.Addr(), 1)
	cfg, err := Config{Test: Test{Write, Bandwidth}, CM: CMAll, QPs: 2}.withDefaults(b.Dev)
	if err != nil {
		t.Fatal(err)
	}
	res, err := newResources(b.Dev, interop.Client, &cfg, pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer res.close()
	m, dial := &managed{server: at}, cfg.dialConfig(verbs.MTU1024)
	other, err := cm.Listen(a.Dev, netip.AddrPortFrom(a.Dev.Addr(), 2), cm.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	dialed := make(chan error, 1)
	go func() {
		conn, err := m.dial(t.Context(), tasksOf(b.Dev), res.lanes.Lanes[0].Send, dial)
		if err == nil {
			conn.Close()
		}
		dialed <- err
	}()
	if _, err := m.dialOnce(t.Context(), res.lanes.Lanes[1].Send, dial); err == nil { // rejected
		t.Error("nobody listens, and it connects")
	}
	ln, err := cm.Listen(a.Dev, at, cm.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	r, err := ln.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	qp, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, RecvCQ: a.CQ})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Accept(t.Context(), qp, cm.AcceptConfig{}); err != nil {
		t.Error(err)
	}
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

func TestCMConfigs(t *testing.T) {
	t.Parallel()
	a, _ := verbstest.Devices(t)
	for want, c := range map[string]Config{
		"connects RC here, not UD": {Test: Test{Send, Bandwidth}, CM: CMAll, Service: interop.UD},
		"no use 3":                 {CM: 3},
		"retry count":              {RetryCount: verbs.Set(8)},
	} {
		if err := c.Check(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
	sc, _ := testpair.Connections(t)
	if _, err := Run(t.Context(), a, sc, interop.Server, Config{CM: CMAll}); err == nil || !strings.Contains(err.Error(), "RunCM") {
		t.Errorf("Run ends with %v", err)
	}
}
