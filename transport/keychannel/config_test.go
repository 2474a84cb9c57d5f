package keychannel_test

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// TestAnyHostIsRefused: a configuration by which any host could come is an
// error, also for a channel that has another one, which stays.
func TestAnyHostIsRefused(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	good, peer := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	open := good.Clone()
	open.InsecureSkipVerify = true
	_, err := keychannel.Open(keychannel.Config{Addr: addrA, TLS: open, Table: guard.NewTable()})
	if err == nil || !strings.Contains(err.Error(), "VerifyConnection") {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.open(t, addrA, good, nil), n.open(t, addrB, peer, nil)
		for _, bad := range []*tls.Config{nil, open} {
			if err := a.SetTLS(bad); err == nil {
				t.Errorf("taken: %+v", bad)
			}
		}
		a.Want(addrB, guard.ToSend)
		synctest.Wait()
		agreed(t, a, b, addrA, addrB)
		closeAll(t, a, b)
	})
}

// TestWithoutCertificate: a peer that shows no certificate is refused, whatever
// the configuration that the program has for its other servers.
func TestWithoutCertificate(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	lax := config(t, ca, testcert.Subject{Addr: addrB.String()})
	lax.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return lax, nil }
	skip := config(t, ca, testcert.Subject{Addr: addrB.String()})
	skip.InsecureSkipVerify, skip.VerifyConnection = true, func(tls.ConnectionState) error { return nil }
	for _, c := range []*tls.Config{lax, skip} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			b := n.open(t, addrB, c, nil)
			raw, err := n.dial(addrA, addrB)
			if err != nil {
				t.Fatal(err)
			}
			conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
			_ = conn.Handshake()
			time.Sleep(10 * time.Second)
			if c := b.Counters(); c.Failed != 1 || !b.state(addrA).Since.IsZero() {
				t.Errorf("%+v", c)
			}
			if len(b.States()) != 0 {
				t.Errorf("%+v", b.States())
			}
			raw.Close()
			closeAll(t, b)
		})
	}
}

// TestVerifyConnection: what a program adds to the check of certificates counts
// for both directions, also where certificates are good for any host.
func TestVerifyConnection(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	for _, any := range []bool{false, true} {
		for _, begins := range []bool{false, true} {
			one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
			one.VerifyConnection = func(tls.ConnectionState) error { return errors.New("revoked") }
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				anywhere := func(c *keychannel.Config) { c.AnyAddress = any }
				a, b := n.open(t, addrA, one, anywhere), n.open(t, addrB, two, anywhere)
				if begins {
					a.Want(addrB, guard.ToSend)
				} else {
					b.Want(addrA, guard.ToSend)
				}
				time.Sleep(10 * time.Second)
				if st := a.state(addrB); !st.Since.IsZero() {
					t.Errorf("any address %v, it begins %v: keys", any, begins)
				}
				closeAll(t, a, b)
			})
		}
	}
}

// TestOwnKeys: where packets of an address to itself are sealed there are keys
// for them, also after many renewals.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	six := netip.MustParseAddr("2001:db8::1")
	cfg := config(t, ca, testcert.Subject{Addr: six.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.open(t, six, cfg, nil)
		w := &wire{addr: six}
		w.peer = w
		l := guard.New(w, guard.Config{Table: s.table, Want: s.Want})
		for range 10 {
			oneWay(t, l, l)
			if data := w.last; !transport.IsSealed(data) {
				t.Errorf("in clear: % x", data)
			}
			time.Sleep(time.Minute)
			version := s.table.Version()
			s.Want(six, guard.Renew)
			if s.table.Version() == version {
				t.Error("there are no new keys")
			}
		}
		if n.dialled() != 0 || len(s.States()) != 0 {
			t.Errorf("%d connections, %v", n.dialled(), s.States())
		}
		closeAll(t, s)
	})
}
