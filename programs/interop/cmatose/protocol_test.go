package cmatose

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// ends are the two ends of a connection.
type ends struct {
	client, server         *side
	clientPeer, serverPeer testpair.Peer
}

// connected connects two ends that have posted their receives.
func connected(t *testing.T, client, server Config, network ...verbstest.Config) ends {
	t.Helper()
	a, b := verbstest.NewPair(t, network...)
	return connectedOn(t, a.Dev, b.Dev, client, server)
}

// connectedOn is connected on given devices.
func connectedOn(t *testing.T, a, b *verbs.Device, client, server Config) ends {
	t.Helper()
	client, err := client.withDefaults(a)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = server.withDefaults(b); err != nil {
		t.Fatal(err)
	}
	e := ends{clientPeer: testpair.NewPeer(), serverPeer: testpair.NewPeer()}
	if e.client, err = newSide(a, 0, client); err != nil {
		t.Fatal(err)
	}
	if e.server, err = newSide(b, 0, server); err != nil {
		t.Fatal(err)
	}
	e.server.admit = func() error { return nil }
	t.Cleanup(e.client.Close)
	t.Cleanup(e.server.Close)
	for _, s := range []*side{e.client, e.server} {
		if err := errors.Join(s.QP.Init(), s.prepare()); err != nil {
			t.Fatal(err)
		}
	}
	verbstest.Connect(t, e.client.QP, e.server.QP)
	// Not both at once: the one that gives up first disconnects.
	e.client.Begin(t.Context(), "messages", e.clientPeer, time.Minute)
	e.server.Begin(t.Context(), "messages", e.serverPeer, time.Minute+time.Second)
	return e
}

// run runs both ends; an end that fails disconnects.
func (e *ends) run() (client, server error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if server = e.server.runServer(); server != nil {
			e.clientPeer.Leave()
		}
	}()
	if client = e.client.runClient(); client != nil {
		e.serverPeer.Leave()
	}
	<-done
	return client, server
}

func TestBothEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg     Config
		network fabric.PortConfig
	}{
		"defaults": {},
		"large":    {cfg: Config{Size: 100_001, Messages: 30}},
		"many":     {cfg: Config{Size: 1, Messages: 5000}},
		"loss":     {cfg: Config{Messages: 300, Size: 5000}, network: fabric.PortConfig{Loss: 0.02}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := connected(t, tt.cfg, tt.cfg, verbstest.Config{Network: fabric.Config{Seed: 5, Port: tt.network}})
				if client, server := e.run(); client != nil || server != nil {
					t.Fatalf("client %v, server %v", client, server)
				}
				n := e.client.cfg.Messages
				c, s := e.client.result(time.Now()), e.server.result(time.Now())
				if c.Sent != n || s.Received != n || c.Bytes != s.Bytes || c.Bytes != 2*uint64(n*e.client.cfg.Size) || c.Unconfirmed+s.Unconfirmed != 0 {
					t.Errorf("client %+v, server %+v", c, s)
				}
			})
		})
	}
}

// TestDifferentTests starts the two sides differently: each says so, or ends.
func TestDifferentTests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		client, server         Config
		wantClient, wantServer string
	}{
		"server's messages are larger": {
			client: Config{}, server: Config{Size: 200},
			wantClient: "100 bytes here, more there", wantServer: "(-S)",
		},
		"server's messages are smaller": {
			client: Config{Size: 200}, server: Config{},
			wantClient: "200 bytes here, 100 there", wantServer: "disconnected",
		},
		"server sends fewer": {
			client: Config{Messages: 20}, server: Config{},
			wantClient: "no progress for 1m0s", wantServer: "disconnected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := connected(t, tt.client, tt.server)
				client, server := e.run()
				if client == nil || !strings.Contains(client.Error(), tt.wantClient) {
					t.Errorf("the client ends with %v, expected %q", client, tt.wantClient)
				}
				if server == nil || !strings.Contains(server.Error(), tt.wantServer) {
					t.Errorf("the server ends with %v, expected %q", server, tt.wantServer)
				}
			})
		})
	}
}

// TestPeerLeaves has the peers disconnect before they have said anything.
func TestPeerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := connected(t, Config{}, Config{})
		e.clientPeer.Leave()
		if err := e.client.runClient(); !errors.Is(err, interop.ErrDisconnected) || !strings.Contains(err.Error(), "after 0 messages sent and 0 received") {
			t.Errorf("the client ends with %v", err)
		}
		e.serverPeer.Leave()
		if err := e.server.runServer(); !errors.Is(err, interop.ErrDisconnected) {
			t.Errorf("the server ends with %v", err)
		}
	})
}

// TestServerLeavesBeforeTheLastAcknowledgement is what happens where that is
// lost: the client has done all that it should.
func TestServerLeavesBeforeTheLastAcknowledgement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.NewPair(t)
		e := connectedOn(t, a.Dev, b.Dev, Config{}, Config{})
		e.client.cfg.OnStep = func(s Step) {
			if s == Sending {
				b.Port.Cut()
				e.clientPeer.Leave()
			}
		}
		if err := e.server.send(); err != nil {
			t.Fatal(err)
		}
		if err := e.client.runClient(); err != nil {
			t.Error(err)
		}
		if r := e.client.result(time.Now()); r.Sent != 10 || r.Unconfirmed != 10 {
			t.Errorf("the client has %+v", r)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	dev, _ := verbstest.Devices(t)
	for want, c := range map[string]Config{
		"message size":          {Size: -1},
		"number of messages":    {Messages: 1 << 30},
		"number of connections": {Connections: -1},
		"ACK timeout":           {AckTimeout: 32},
		"negative":              {IdleTimeout: -1},
	} {
		var ce *interop.ConfigError
		if err := c.Check(dev); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
}
