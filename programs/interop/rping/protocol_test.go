package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// TestMessageIsByteExact compares with what the original sends.
func TestMessageIsByteExact(t *testing.T) {
	t.Parallel()
	b := buffer{addr: 0x1122334455667788, rkey: 0xdeadbe01, size: 64}
	want := []byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0xde, 0xad, 0xbe, 0x01, 0, 0, 0, 64}
	if got := b.append(nil); !bytes.Equal(got, want) || parseBuffer(got) != b {
		t.Errorf("the message is %x, parsed %+v", got, parseBuffer(got))
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	for ping, want := range map[int]string{
		0:  "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\x00",
		57: "rdma-ping-57: z" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnop\x00",
		58: "rdma-ping-58: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopq\x00",
	} {
		p := make([]byte, DefaultSize)
		if fill(p, ping); string(p) != want {
			t.Errorf("ping %d is %q, expected %q", ping, p, want)
		}
	}
	p := make([]byte, MinSize)
	if fill(p, 1<<31-1); string(text(p)) != "rdma-ping-2147483647: HIJK" {
		t.Errorf("the shortest ping is %q", p)
	}
}

// ends are the two ends of a connection.
type ends struct {
	client, server         *side
	clientPeer, serverPeer testpair.Peer
}

// connected connects two ends that have posted their receives.
func connected(t *testing.T, client, server Config, network ...verbstest.Config) ends {
	t.Helper()
	a, b := verbstest.Devices(t, network...)
	client, err := client.withDefaults(interop.Client)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = server.withDefaults(interop.Server); err != nil {
		t.Fatal(err)
	}
	e := ends{clientPeer: testpair.NewPeer(), serverPeer: testpair.NewPeer()}
	if e.client, err = newClient(a, client); err != nil {
		t.Fatal(err)
	}
	if e.server, err = newServer(b, 0, server); err != nil {
		t.Fatal(err)
	}
	e.server.admit = func() error { return nil }
	t.Cleanup(e.client.close)
	t.Cleanup(e.server.close)
	for _, s := range []*side{e.client, e.server} {
		if err := errors.Join(s.QP.Init(), s.prepare()); err != nil {
			t.Fatal(err)
		}
	}
	verbstest.Connect(t, e.client.QP, e.server.QP)
	e.client.Begin(t.Context(), "rping", e.clientPeer, client.IdleTimeout)
	e.server.Begin(t.Context(), "rping", e.serverPeer, server.IdleTimeout)
	return e
}

type outcome struct {
	Result
	err error
}

// run runs both ends. The client disconnects when it is done.
func (e *ends) run() (client, server outcome) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Result, server.err = e.server.runServer()
	}()
	client.Result, client.err = e.client.runClient()
	e.serverPeer.Leave()
	<-done
	return client, server
}

func TestBothRoles(t *testing.T) {
	t.Parallel()
	lossy := verbstest.Config{Network: fabric.Config{Seed: 3, Port: fabric.PortConfig{Loss: 0.02}}}
	for name, tt := range map[string]struct {
		client  Config
		network verbstest.Config
	}{
		"defaults":  {client: Config{Count: 100, Validate: true}},
		"large":     {client: Config{Count: 20, Size: MaxSize, Validate: true}},
		"small":     {client: Config{Count: 20, Size: MinSize, Validate: true}},
		"with loss": {client: Config{Count: 200, Size: 5000, Validate: true}, network: lossy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var pings []string
				tt.client.OnPing = func(data []byte) { pings = append(pings, string(data)) }
				e := connected(t, tt.client, Config{}, tt.network)
				c, s := e.run()
				if c.err != nil || s.err != nil {
					t.Fatalf("client %v, server %v", c.err, s.err)
				}
				n := tt.client.Count
				if c.Pings != n || s.Pings != n || len(pings) != n || c.Bytes != s.Bytes || c.Bytes == 0 {
					t.Errorf("client %+v, server %+v, %d pings seen", c, s, len(pings))
				}
				if want := fmt.Sprintf("rdma-ping-%d: ", n-1); !strings.HasPrefix(pings[n-1], want) {
					t.Errorf("the last ping is %q", pings[n-1])
				}
			})
		})
	}
}

// TestWrongPeers has each end meet a peer that does not keep to the protocol.
func TestWrongPeers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wrong  func(s *side) error // instead of one of the ends
		server bool                // it takes the server's place
		want   string
	}{
		"message too short": {
			wrong: func(s *side) error { return s.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 15)}) },
			want:  "size 15",
		},
		"message too long": {
			wrong:  func(s *side) error { return s.post(verbs.SendWR{Opcode: verbs.OpSend, Inline: make([]byte, 17)}) },
			server: true,
			want:   "LOC_LEN_ERR",
		},
		"too much":      {wrong: func(s *side) error { return s.tell(buffer{addr: 1, rkey: 1, size: 1 << 31}) }, want: "offers 2147483648 bytes"},
		"nothing":       {wrong: func(s *side) error { return s.tell(buffer{addr: 1, rkey: 1}) }, want: "offers 0 bytes"},
		"wrong key":     {wrong: func(s *side) error { return s.tell(buffer{addr: 1, rkey: 1, size: 64}) }, want: "REM_ACCESS_ERR"},
		"silent":        {wrong: func(*side) error { return nil }, want: "no progress for 1m0s"},
		"silent server": {wrong: func(*side) error { return nil }, server: true, want: "no progress for 1m0s"},
		"small sink": {
			wrong: func(s *side) error {
				fill(s.data.Bytes()[:64], 0)
				err := s.offer(0)
				if _, e := s.hear(); e != nil {
					return e
				}
				return errors.Join(err, s.tell(buffer{addr: 1, rkey: 1, size: 10}))
			},
			want: "offers 10 bytes for an answer of 64",
		},
		"two messages at once": {
			wrong: func(s *side) error { return errors.Join(s.offer(0), s.offer(0)) },
			want:  "out of turn",
		},
		"another answer": {
			wrong:  func(s *side) error { return errors.Join(s.tell(buffer{}), s.tell(buffer{})) },
			server: true,
			want:   "data mismatch: ping 0 came back as \"\"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := connected(t, Config{Count: 1, Validate: true}, Config{})
				right, wrong, run := e.server, e.client, (*side).runServer
				if tt.server {
					right, wrong, run = e.client, e.server, (*side).runClient
				}
				done := make(chan error, 1)
				go func() { done <- tt.wrong(wrong) }()
				synctest.Wait()
				if _, err := run(right); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("it ends with %v, expected %q", err, tt.want)
				}
				if err := <-done; err != nil {
					t.Errorf("the wrong peer: %v", err)
				}
			})
		})
	}
}

// TestDisconnectInTheMiddle has the peers leave before the end of a ping.
func TestDisconnectInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := connected(t, Config{}, Config{})
		e.clientPeer.Leave()
		if _, err := e.client.runClient(); !errors.Is(err, interop.ErrDisconnected) {
			t.Errorf("the client ends with %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := connected(t, Config{}, Config{})
		go func() {
			e.client.offer(0)
			e.client.hear()
			e.serverPeer.Leave()
		}()
		if _, err := e.server.runServer(); !errors.Is(err, interop.ErrDisconnected) {
			t.Errorf("the server ends with %v", err)
		}
	})
}

// TestEndOfContext ends a client that would go on for ever.
func TestEndOfContext(t *testing.T) {
	t.Parallel()
	e := connected(t, Config{}, Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	e.client.cfg.OnPing = func([]byte) { cancel(enough) }
	e.client.Begin(ctx, "rping", e.clientPeer, time.Minute)
	c, s := e.run()
	if !errors.Is(c.err, enough) || c.Pings == 0 || s.err != nil && !errors.Is(s.err, interop.ErrDisconnected) {
		t.Errorf("client %+v %v, server %+v %v", c, c.err, s, s.err)
	}
}
