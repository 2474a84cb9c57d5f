package rdma

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcable"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// secureNet is two devices, certificates for both, and a listener on the first.
type secureNet struct {
	devs   [2]*verbs.Device
	cables [2]*testcable.Cable
	server *tls.Config
	client *tls.Config
}

const (
	serverAddr = "192.0.2.1"
	servedAt   = serverAddr + ":7471"
)

func newSecureNet(t *testing.T, network fabric.Config) *secureNet {
	t.Helper()
	return newSecureNetOf(t, network, verbs.Config{Sealing: true})
}

func newSecureNetOf(t *testing.T, network fabric.Config, device verbs.Config) *secureNet {
	t.Helper()
	sw := fabric.NewSwitch(network)
	n := &secureNet{}
	for i, addr := range []string{serverAddr, "192.0.2.2"} {
		port := must1[*fabric.Port](t)(sw.Attach(netip.MustParseAddr(addr)))
		n.cables[i] = testcable.New(port)
		n.devs[i] = must1[*verbs.Device](t)(verbs.OpenLink(n.cables[i], device))
		t.Cleanup(func() { n.devs[i].Close() })
	}
	a := testcert.New(t)
	n.server = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "server", serverAddr)}, ClientCAs: a.Pool, ClientAuth: tls.RequireAndVerifyClientCert}
	n.client = &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "client", "")}, RootCAs: a.Pool}
	return n
}

// listen has a listener that returns each message to its sender.
func (n *secureNet) listen(t *testing.T, lc ListenConfig) *Listener {
	t.Helper()
	lc.Device = n.devs[0]
	l := must1[*Listener](t)(lc.Listen(t.Context(), servedAt))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go func() {
				for {
					m, err := c.RecvMsg(context.Background())
					if err != nil {
						c.Close()
						return
					}
					c.Send(context.Background(), m.Bytes())
					m.Release()
				}
			}()
		}
	}()
	return l
}

func (n *secureNet) dial(t *testing.T, config *tls.Config) (*Conn, error) {
	d := Dialer{Device: n.devs[1], TLS: config}
	return d.Dial(testContext(t), servedAt)
}

var secretText = bytes.Repeat([]byte("a secret that only the peer may read. "), 40)

func echo(t testing.TB, c *Conn, m []byte) {
	t.Helper()
	buf := make([]byte, len(m)+1)
	must(t, c.Send(testContext(t), m))
	k, err := c.Recv(testContext(t), buf)
	must(t, err)
	if !bytes.Equal(buf[:k], m) {
		t.Fatalf("%d bytes have come back as %d others", len(m), k)
	}
}

func TestSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		memory := make([]byte, 1<<16)
		var lc ListenConfig
		lc.TLS = n.server
		lc.Export("shared", Region{Memory: memory, Writable: true})
		n.listen(t, lc)
		c := must1[*Conn](t)(n.dial(t, n.client))
		defer c.Close()
		state, ok := c.ConnectionState()
		if !ok || state.PeerCertificates[0].Subject.CommonName != "server" || !state.HandshakeComplete {
			t.Errorf("%v, %+v", ok, state)
		}
		for _, size := range []int{0, 1, 1000, 60_000} {
			echo(t, c, bytes.Repeat(secretText, 64)[:size])
		}
		r := must1[*RemoteRegion](t)(c.Region(t.Context(), "shared"))
		must1[int](t)(r.WriteAt(secretText, 100))
		back := make([]byte, len(secretText))
		must1[int](t)(r.ReadAt(back, 100))
		if !bytes.Equal(back, secretText) || !bytes.Equal(memory[100:100+len(back)], secretText) {
			t.Error("the region has other bytes")
		}
		for i, cable := range n.cables {
			sealed := 0
			sent := cable.Take()
			for _, p := range sent {
				if bytes.Contains(p, secretText[:20]) {
					t.Fatalf("side %d has sent the secret in clear", i)
				}
				if transport.IsSealed(p) {
					sealed++
				}
			}
			if sealed < 20 {
				t.Errorf("side %d has sealed %d packets of %d", i, sealed, len(sent))
			}
		}
	})
}

func TestSecuredOnABadPath(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newSecureNet(t, fabric.Config{Seed: seed, Port: fabric.PortConfig{Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, Corrupt: 0.01, Delay: 30 * time.Microsecond}})
				n.listen(t, ListenConfig{TLS: n.server})
				for range 5 {
					c := must1[*Conn](t)(n.dial(t, n.client))
					for range 10 {
						echo(t, c, bytes.Repeat(secretText, 30))
					}
					must(t, c.Close())
				}
			})
		})
	}
}

// TestSecuredRekeys has connections over a bad path with new keys all the time,
// which are then idle until keys are due by their age: everything of package
// rdma works on.
func TestSecuredRekeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := fabric.PortConfig{Loss: 0.03, Reorder: 0.05, Duplicate: 0.05, Delay: 30 * time.Microsecond}
		n := newSecureNetOf(t, fabric.Config{Seed: 3, Port: path}, verbs.Config{Sealing: true, RekeyPackets: 20, RekeyAfter: time.Minute})
		memory := make([]byte, 1<<16)
		lc := ListenConfig{TLS: n.server}
		lc.Export("shared", Region{Memory: memory, Writable: true})
		n.listen(t, lc)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				c := must1[*Conn](t)(n.dial(t, n.client))
				r := must1[*RemoteRegion](t)(c.Region(t.Context(), "shared"))
				begun, _ := c.ConnectionState()
				back := make([]byte, 20_000)
				for i := range 100 {
					echo(t, c, bytes.Repeat(secretText, 64)[:i*500])
					must1[int](t)(r.ReadAt(back, int64(i)))
				}
				time.Sleep(3 * time.Minute)
				echo(t, c, secretText)
				if state, ok := c.ConnectionState(); !ok || !bytes.Equal(state.PeerCertificates[0].Raw, begun.PeerCertificates[0].Raw) {
					t.Error("another state of TLS than before")
				}
				if g := must1[*verbs.Sealing](t)(c.core.qp.Sealing()).Generation(); g < 50 {
					t.Errorf("%d new keys", g)
				}
				must(t, c.Close())
			})
		}
		all.Wait()
		for _, dev := range n.devs {
			if c := dev.SealCounters(); c.Rekeys < 200 || c.NoKey+c.Unknown+c.Peer+c.Format+c.Forged != 0 {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestNotSecured has peers of which one has TLS, or the wrong one. None falls
// back to packets in clear, and the listener goes on.
func TestNotSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		told := make(chan string, 10)
		n.listen(t, ListenConfig{TLS: n.server, OnNotSecured: func(client net.Addr, err error) {
			told <- fmt.Sprint(client.(*cm.Addr).Addr(), ": ", err)
		}})
		other := testcert.New(t)
		old := n.client.Clone()
		old.MaxVersion = tls.VersionTLS12
		for _, c := range []struct {
			name   string
			config *tls.Config
			want   string
			told   string // to the program of the listener; "": nothing
		}{
			{"no TLS", nil, "secured connections alone", ""},
			{"another authority", &tls.Config{RootCAs: other.Pool, Certificates: n.client.Certificates}, "certificate signed by unknown authority", "bad certificate"},
			{"another name", &tls.Config{RootCAs: n.client.RootCAs, Certificates: n.client.Certificates, ServerName: "elsewhere"}, "elsewhere", "bad certificate"},
			{"no certificate", &tls.Config{RootCAs: n.client.RootCAs}, "certificate required", "didn't provide a certificate"},
			{"a certificate of another authority", &tls.Config{RootCAs: n.client.RootCAs, Certificates: []tls.Certificate{other.Issue(t, "client", "")}}, "", "certificate"},
			{"TLS 1.2", old, "version", ""},
		} {
			conn, err := n.dial(t, c.config)
			if err == nil {
				conn.Close()
				t.Errorf("%s: it is connected", c.name)
			} else if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
			if c.told == "" {
				continue // there was no handshake
			}
			if got := <-told; !strings.HasPrefix(got, "192.0.2.2: ") || !strings.Contains(got, c.told) {
				t.Errorf("%s: the listener is told %q, want %q", c.name, got, c.told)
			}
		}
		c := must1[*Conn](t)(n.dial(t, n.client))
		echo(t, c, secretText)
		must(t, c.Close())
	})
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		n.listen(t, ListenConfig{})
		if _, err := n.dial(t, n.client); err == nil || !strings.Contains(err.Error(), "does not secure") {
			t.Errorf("a listener without TLS: %v", err)
		}
		c := must1[*Conn](t)(n.dial(t, nil))
		if _, ok := c.ConnectionState(); ok {
			t.Error("a connection in clear has a state of TLS")
		}
		must(t, c.Close())
	})
}

// TestSlowHandshakes has clients that say nothing after they are connected:
// others are served meanwhile, and they are dropped after a time.
func TestSlowHandshakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		l := n.listen(t, ListenConfig{TLS: n.server})
		stall := n.client.Clone()
		stalled := make(chan struct{})
		stall.VerifyConnection = func(tls.ConnectionState) error { <-stalled; return errors.New("too late") }
		var slow sync.WaitGroup
		for range 20 {
			slow.Go(func() {
				if c, err := n.dial(t, stall); err == nil {
					c.Close()
					t.Error("a stalled handshake has succeeded")
				}
			})
		}
		time.Sleep(time.Second)
		c := must1[*Conn](t)(n.dial(t, n.client))
		echo(t, c, secretText)
		time.Sleep(2 * secure.Time)
		if got := l.conns.Load(); got != 1 {
			t.Errorf("%d connections after the time of handshakes, want that which is secured", got)
		}
		close(stalled)
		slow.Wait()
		must(t, c.Close())
	})
}

// TestSecuredRefusesEarly has a dialler that asks the directory, and writes,
// before the connection is secured.
func TestSecuredRefusesEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newSecureNet(t, fabric.Config{})
		memory := make([]byte, 4096)
		lc := ListenConfig{TLS: n.server}
		lc.Export("shared", Region{Memory: memory, Writable: true})
		n.listen(t, lc)
		c := must1[*Conn](t)(n.dial(t, n.client))
		r := must1[*RemoteRegion](t)(c.Region(t.Context(), "shared"))
		for _, early := range []struct {
			name string
			do   func(*Conn) error
		}{
			{"ask", func(c *Conn) error { _, err := c.Region(t.Context(), "shared"); return err }},
			{"write", func(c *Conn) error {
				op := c.Go(verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), Remote: verbs.RemoteAddr{Addr: r.Remote().Addr, RKey: r.Remote().RKey}})
				<-op.Done()
				return op.Err()
			}},
		} {
			d := Dialer{Device: n.devs[1]}
			shared := must1[*sharedHub](t)(hubs.get(n.devs[1], netip.MustParseAddr(serverAddr), must1[tuning](t)(tuningOf(0, 0, 0))))
			d.TLS = n.client // says so in its greeting, and has no handshake
			bad := must1[*Conn](t)(d.connect(t.Context(), shared.hub, netip.MustParseAddrPort(servedAt)))
			bad.core.mu.Lock()
			bad.core.secured.session = new(secure.Session)
			bad.core.mu.Unlock()
			if err := early.do(bad); err == nil {
				t.Errorf("%s: no error", early.name)
			}
			bad.Close()
			hubs.put(shared)
		}
		if !bytes.Equal(memory, make([]byte, 4096)) {
			t.Error("the region was written before the connection was secured")
		}
		must(t, c.Close())
	})
}

func TestSecureErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if _, err := (&ListenConfig{TLS: &tls.Config{}, Foreign: true}).Listen(t.Context(), "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "Foreign") {
			t.Errorf("a listener for foreign peers with TLS: %v", err)
		}
		if _, err := (&Dialer{TLS: &tls.Config{}, Foreign: true}).Dial(t.Context(), "127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "Foreign") {
			t.Errorf("a foreign listener with TLS: %v", err)
		}
		p := newPair(t, pairConfig{})
		d := Dialer{Device: p.a.dev, TLS: &tls.Config{}}
		if _, err := d.Dial(t.Context(), "192.0.2.2:7471"); !errors.Is(err, verbs.ErrNotSealing) {
			t.Errorf("a device that does not seal: %v", err)
		}
	})
}
