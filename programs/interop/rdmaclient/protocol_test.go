package rdmaclient

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/programs/interop"
	"github.com/gosoftroce/rocev2/programs/interop/internal/link"
	"github.com/gosoftroce/rocev2/programs/interop/internal/testpair"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// ends are the two ends of a connection.
type ends struct {
	client, server         *side
	clientPeer, serverPeer testpair.Peer
}

func connected(t *testing.T, client, server Config) ends {
	t.Helper()
	a, b := verbstest.Devices(t)
	client, err := client.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if server, err = server.withDefaults(); err != nil {
		t.Fatal(err)
	}
	e := ends{clientPeer: testpair.NewPeer(), serverPeer: testpair.NewPeer()}
	if e.client, err = newSide(a, 0, interop.Client, client); err != nil {
		t.Fatal(err)
	}
	if e.server, err = newSide(b, 0, interop.Server, server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.client.Close)
	t.Cleanup(e.server.Close)
	for _, s := range []*side{e.client, e.server} {
		if err := errors.Join(s.QP.Init(), s.prepare()); err != nil {
			t.Fatal(err)
		}
	}
	if e.server.SRQ != nil {
		e.client.srqn = e.server.SRQ.Number()
	}
	verbstest.Connect(t, e.client.QP, e.server.QP)
	e.client.Begin(t.Context(), "messages", e.clientPeer, time.Minute)
	e.server.Begin(t.Context(), "messages", e.serverPeer, time.Minute)
	return e
}

func yes() error { return nil }

func TestBothEnds(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]Mode{"plain": Plain, "one way": OneWay, "XRC": XRC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := connected(t, Config{Mode: mode}, Config{Mode: mode})
				done := make(chan error, 1)
				admitted := 0
				go func() { done <- e.server.run(func() error { admitted++; return nil }) }()
				client := e.client.run(nil)
				if server := <-done; client != nil || server != nil {
					t.Fatalf("client %v, server %v", client, server)
				}
				c, s := e.client.result(), e.server.result()
				if c.Sent != 1 || s.Received != 1 || c.Received != s.Sent || (c.Received == 1) != (mode == Plain) || admitted != 1 {
					t.Errorf("client %+v, server %+v, admitted %d times", c, s, admitted)
				}
			})
		})
	}
}

func TestWrongPeers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		server Mode
		wrong  func(e ends) error // the client's part
		want   string
	}{
		"silent": {wrong: func(ends) error { return nil }, want: "no progress for 1m0s"},
		"short": {
			wrong: func(e ends) error {
				return e.client.PostSends(1, verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 15)})
			},
			want: "the peer sent 15 bytes",
		},
		"long": {
			wrong: func(e ends) error {
				return e.client.PostSends(1, verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 17)})
			},
			want: "LOC_LEN_ERR",
		},
		"leaves": {
			wrong: func(e ends) error { e.serverPeer.Leave(); return nil },
			want:  "after 0 messages sent and 0 received: the peer disconnected",
		},
		"another program": { // rdma_xclient leaves as soon as it has sent
			wrong: func(e ends) error {
				e.client.cfg.Mode = OneWay
				e.client.QP.Close()
				e.serverPeer.Leave()
				return nil
			},
			want: "disconnected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := connected(t, Config{}, Config{Mode: tt.server})
				if err := tt.wrong(e); err != nil {
					t.Fatal(err)
				}
				if err := e.server.run(yes); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("the server ends with %v, expected %q", err, tt.want)
				}
			})
		})
	}
}

// TestNotAdmitted has a server that has had its client.
func TestNotAdmitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := connected(t, Config{}, Config{})
		no := errors.New("another was first")
		if err := e.client.send(); err != nil {
			t.Fatal(err)
		}
		if err := e.server.run(func() error { return no }); !errors.Is(err, no) || e.server.count != (link.Count{Received: 1}) {
			t.Errorf("the server ends with %v after %+v", err, e.server.count)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{"no mode 7": {Mode: 7}, "negative": {Clients: -1}} {
		var ce *interop.ConfigError
		if err := c.Check(); !errors.As(err, &ce) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, expected %q", c, err, want)
		}
	}
}
