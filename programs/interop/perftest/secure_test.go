package perftest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/transport/fault"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// ends are the configurations of the two sides of a secured run.
type ends struct{ server, client *tls.Config }

// certified are those of certificates that an authority has issued.
func certified(t *testing.T, server, client testcert.Subject) (e ends) {
	a := testcert.New(t)
	e.server = &tls.Config{Certificates: []tls.Certificate{a.IssueFor(t, server)}, ClientCAs: a.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	e.client = &tls.Config{Certificates: []tls.Certificate{a.IssueFor(t, client)}, RootCAs: a.Pool, ServerName: "192.0.2.1"}
	return e
}

var (
	goodServer = testcert.Subject{CN: "server", Addr: "192.0.2.1"}
	goodClient = testcert.Subject{CN: "client"}
)

func shared(t *testing.T, text string) *tls.Config {
	t.Helper()
	c, err := secure.PSK([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var sealing = verbstest.Config{Device: verbs.Config{Sealing: true}}

// secured runs both sides over a TCP connection.
func secured(t *testing.T, server, client Config) (s, c outcome) {
	t.Helper()
	a, b := verbstest.Devices(t, sealing)
	sc, cc := testpair.Connections(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Res, s.Err = Run(t.Context(), a, sc, interop.Server, patient(server))
	}()
	c.Res, c.Err = Run(t.Context(), b, cc, interop.Client, patient(client))
	<-done
	for _, d := range []*verbs.Device{a, b} {
		if n := d.SealCounters(); s.Err == nil && (n.Opened == 0 || n.Unknown+n.Forged+n.Peer > 0) {
			t.Errorf("sealed packets: %+v", n)
		}
	}
	return s, c
}

// TestSecured runs each test over each service and connection that a secured
// run has.
func TestSecured(t *testing.T) {
	t.Parallel()
	e := certified(t, goodServer, goodClient)
	for _, test := range Tests {
		for _, service := range []interop.Service{interop.RC, interop.XRC} {
			for name, cm := range map[string]CM{"TCP": NoCM, "-z": CMControl, "-R": CMAll} {
				if service == interop.XRC && cm == CMAll {
					continue
				}
				t.Run(test.String()+"/"+service.String()+"/"+name, func(t *testing.T) {
					t.Parallel()
					server := Config{Test: test, Service: service, Iterations: 60, CM: cm, TLS: e.server}
					if test.Kind == Bandwidth {
						server.QPs = 3
					}
					client := server
					client.TLS = e.client
					client.OnStart = func(s Setup) {
						if s.Secured == nil || s.Secured.Packets != verbs.SealGCM128 || s.MTU > 4096 {
							t.Errorf("%+v", s.Secured)
						}
					}
					run := secured
					if cm != NoCM {
						run = func(t *testing.T, server, client Config) (s, c outcome) {
							return bothByCM(t, patient(server), patient(client), sealing)
						}
					}
					s, c := run(t, server, client)
					if s.Err != nil || c.Err != nil {
						t.Fatalf("server: %v; client: %v", s.Err, c.Err)
					}
					if r := c.Res[0]; r.Secured == nil || secure.Names(r.Secured.TLS)[0] != "CN=server" {
						t.Errorf("%+v", r.Secured)
					}
				})
			}
		}
	}
}

// TestNotSecured has sides that do not fit each other: there is no run, and
// both say why.
func TestNotSecured(t *testing.T) {
	t.Parallel()
	good := certified(t, goodServer, goodClient)
	other := certified(t, goodServer, goodClient)
	bare := good.client.Clone()
	bare.Certificates = nil
	old := certified(t, goodServer, testcert.Subject{CN: "client", Expired: true})
	stale := certified(t, testcert.Subject{CN: "server", Addr: "192.0.2.1", Expired: true}, goodClient)
	elsewhere := certified(t, testcert.Subject{CN: "server", Addr: "192.0.2.99"}, goodClient)
	for name, c := range map[string]struct {
		server, client     *tls.Config
		atServer, atClient string
	}{
		"server in clear":         {nil, good.client, "the peer wants a secured run", "the server refused"},
		"client in clear":         {good.server, nil, "the client is not secured", "the client is not secured"},
		"server of another CA":    {other.server, good.client, "the peer refuses the certificate", "not of an authority that this side trusts"},
		"client of another CA":    {good.server, &tls.Config{RootCAs: good.client.RootCAs, ServerName: "192.0.2.1", Certificates: other.client.Certificates}, "not of an authority that this side trusts", "does not trust the authority"},
		"client without one":      {good.server, bare, "has shown no certificate", "wants a certificate of this side"},
		"client's has expired":    {old.server, old.client, "has expired", "as expired"},
		"server's has expired":    {stale.server, stale.client, "the peer refuses the certificate", "has expired"},
		"server's is for another": {elsewhere.server, elsewhere.client, "the peer refuses the certificate", "for another name"},
		"another secret":          {shared(t, "sixteen bytes at least"), shared(t, "sixteen bytes, another"), "the pre-shared secret, of this side", "does not have the pre-shared secret"},
		"secret and certificates": {shared(t, "sixteen bytes at least"), good.client, "the peer refuses the certificate", "for another name"},
		"certificates and secret": {good.server, shared(t, "sixteen bytes at least"), "the peer refuses the certificate", "does not have the pre-shared secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := verbstest.Devices(t, sealing)
			ln, dial := testpair.Listener(t)
			refused := make(chan error, 1)
			cfg := Config{Test: Test{Write, Bandwidth}, Iterations: 20}
			server, client := cfg, cfg
			server.TLS, client.TLS = c.server, c.client
			server.OnRefused = func(_ net.Addr, why error) { refused <- why }
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, err := Serve(ctx, a, ln, patient(server))
				done <- err
			}()
			res, err := Run(t.Context(), b, dial(), interop.Client, patient(client))
			if err == nil || res != nil || !strings.Contains(err.Error(), c.atClient) {
				t.Errorf("the client says %v; want %q", err, c.atClient)
			}
			if why := <-refused; !strings.Contains(why.Error(), c.atServer) {
				t.Errorf("the server says %v; want %q", why, c.atServer)
			}
			cancel()
			<-done
			if n := a.QPStats(); n.RxPackets+n.TxPackets > 0 {
				t.Errorf("packets were sent: %+v", n)
			}
		})
	}
}

// TestSecuredInACrowd has many clients connect to a server and say nothing, or
// half of a handshake: one that can is served.
func TestSecuredInACrowd(t *testing.T) {
	t.Parallel()
	e := certified(t, goodServer, goodClient)
	a, b := verbstest.Devices(t, sealing)
	ln, dial := testpair.Listener(t)
	server := Config{Test: Test{Send, Bandwidth}, Iterations: 20, TLS: e.server}
	client := server
	client.TLS = e.client
	done := make(chan error, 1)
	go func() {
		_, err := Serve(t.Context(), a, ln, patient(server))
		done <- err
	}()
	for i := range 100 {
		c := dial()
		if i%2 == 0 {
			io.WriteString(c, "\x16\x03\x01\x01\x00\x01")
		}
	}
	if _, err := Run(t.Context(), b, dial(), interop.Client, patient(client)); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSecuredConfig asks for what cannot be.
func TestSecuredConfig(t *testing.T) {
	t.Parallel()
	e := certified(t, goodServer, goodClient)
	clear, _ := verbstest.Devices(t)
	sealed, _ := verbstest.Devices(t, sealing)
	for _, c := range []struct {
		dev  *verbs.Device
		cfg  Config
		want string
	}{
		{sealed, Config{Test: Test{Send, Bandwidth}, Service: interop.UD, Size: 64}, "only packets of a reliable service"},
		{sealed, Config{Test: Test{Write, Bandwidth}, Service: interop.UC}, "only packets of a reliable service"},
		{clear, Config{Test: Test{Write, Bandwidth}}, "Config.Sealing"},
	} {
		c.cfg.TLS = e.client
		if err := c.cfg.Check(c.dev); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg.Service, err, c.want)
		}
	}
}

// TestSecuredWithFaults has the network of a secured run lose, repeat, reorder
// and damage packets, by the rules of package fault, on both sides.
func TestSecuredWithFaults(t *testing.T) {
	t.Parallel()
	one := shared(t, "sixteen bytes at least")
	for _, action := range []fault.Action{fault.Drop, fault.Duplicate, fault.Corrupt, fault.Reorder, fault.Delay} {
		for _, direction := range []fault.Direction{fault.Tx, fault.Rx} {
			t.Run(fmt.Sprint(action, direction), func(t *testing.T) {
				t.Parallel()
				sw := fabric.NewSwitch(fabric.Config{Port: fabric.PortConfig{RecvBuffer: testpair.Buffer}})
				open := func(addr string) (*verbs.Device, *fault.Link) {
					port, err := sw.Attach(netip.MustParseAddr(addr))
					if err != nil {
						t.Fatal(err)
					}
					l := fault.New(port, 1, fault.Rule{Action: action, Direction: direction, Every: 20, Distance: 2, Delay: time.Millisecond})
					dev, err := verbs.OpenLink(l, sealing.Device)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { dev.Close() })
					return dev, l
				}
				a, first := open("192.0.2.1")
				b, second := open("192.0.2.2")
				sc, cc := testpair.Connections(t)
				cfg := patient(Config{Test: Test{Write, Bandwidth}, Size: 20000, Iterations: 300, TLS: one})
				cfg.Timeout = 12
				done := make(chan error, 1)
				go func() {
					_, err := Run(t.Context(), a, sc, interop.Server, cfg)
					done <- err
				}()
				if _, err := Run(t.Context(), b, cc, interop.Client, cfg); err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				hits := uint64(0)
				for _, f := range []*fault.Link{first, second} {
					tx, rx := f.Counts()
					for _, n := range []fault.Counts{tx, rx} {
						hits += n.Dropped + n.Duplicated + n.Corrupted + n.Reordered + n.Delayed
					}
				}
				if hits == 0 {
					t.Error("no packet was hit")
				}
				x, y := a.SealCounters(), b.SealCounters()
				if action == fault.Corrupt && x.Forged+y.Forged == 0 || action == fault.Duplicate && x.Replays+y.Replays == 0 {
					t.Errorf("%+v, %+v", x, y)
				}
			})
		}
	}
}
