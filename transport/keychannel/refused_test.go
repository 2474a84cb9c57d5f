package keychannel_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// TestRefused: no side has keys of a peer that is not the one with that
// address.
func TestRefused(t *testing.T) {
	t.Parallel()
	ca, other := testcert.New(t), testcert.New(t)
	forB := testcert.Subject{CN: "b", Addr: addrB.String()}
	stranger := config(t, other, forB)
	stranger.RootCAs = ca.Pool
	own := config(t, ca, forB)
	own.Certificates = []tls.Certificate{selfSigned(t)}
	for _, c := range []struct {
		name   string
		server *tls.Config
		change func(*keychannel.Config)
		want   string
	}{
		{name: "another authority", server: stranger, want: "unknown authority"},
		{name: "an authority of another name", server: own, want: "unknown authority"},
		{name: "another address", server: config(t, ca, testcert.Subject{CN: "b", Addr: addrC.String()}), want: "10.0.0.2"},
		{name: "no address", server: config(t, ca, testcert.Subject{CN: "b"}), want: "IP SANs"},
		{name: "expired", server: config(t, ca, testcert.Subject{CN: "b", Addr: addrB.String(), Expired: true}), want: "expired"},
		{name: "not allowed", server: config(t, ca, forB), want: "not on the list", change: func(c *keychannel.Config) {
			c.Allow = func(netip.Addr, *tls.ConnectionState) (string, error) {
				return "", errors.New("not on the list")
			}
		}},
	} {
		for _, begins := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, begins), func(t *testing.T) {
				t.Parallel()
				good := config(t, ca, testcert.Subject{CN: "a", Addr: addrA.String()})
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var why error
					n := newNetwork()
					a := n.open(t, addrA, good, func(k *keychannel.Config) {
						if c.change != nil {
							c.change(k)
						}
						k.Explain = func(err error) error {
							mu.Lock()
							defer mu.Unlock()
							why = errors.Join(why, err)
							return err
						}
					})
					var told keychannel.Failure // the first one
					var at time.Time
					b := n.open(t, addrB, c.server, func(k *keychannel.Config) {
						k.Failed = func(f keychannel.Failure) {
							mu.Lock()
							defer mu.Unlock()
							if told.Err == nil {
								told, at = f, time.Now()
							}
						}
					})
					begin := time.Now()
					if begins {
						a.Want(addrB, guard.ToSend)
					} else {
						b.Want(addrA, guard.ToSend)
					}
					time.Sleep(10 * time.Second)
					if st := a.state(addrB); !st.Since.IsZero() {
						t.Errorf("keys: %+v", st)
					}
					mu.Lock()
					defer mu.Unlock()
					if told.Began == begins || told.Peer != addrA || told.Err == nil || !strings.Contains(told.Err.Error(), "remote error: tls: ") || strings.Contains(told.Err.Error(), "required") {
						t.Errorf("the peer has heard %+v", told)
					}
					if took := at.Sub(begin); took > 0 {
						t.Errorf("the peer has heard it after %v", took)
					}
					if why == nil || !strings.Contains(why.Error(), c.want) {
						t.Errorf("the error is %v", why)
					}
					closeAll(t, a, b)
				})
			})
		}
	}
}

// selfSigned returns a certificate of no authority.
func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "b"}, SerialNumber: big.NewInt(1), NotBefore: realNow.Add(-time.Hour), NotAfter: realNow.Add(time.Hour)}
	der, err := x509.CreateCertificate(nil, c, c, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestErrorBesideKeys: a peer that has keys, and then comes with a certificate
// that is no good, is known to have failed; the keys stay.
func TestErrorBesideKeys(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one, two := config(t, ca, testcert.Subject{Addr: addrA.String()}), config(t, ca, testcert.Subject{Addr: addrB.String()})
	wrong := config(t, ca, testcert.Subject{Addr: addrC.String()})
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		var told keychannel.Failure
		a := n.open(t, addrA, one, func(c *keychannel.Config) { c.Failed = func(f keychannel.Failure) { told = f } })
		b := n.open(t, addrB, two, nil)
		a.Want(addrB, guard.ToSend)
		time.Sleep(10 * time.Second)
		agreed(t, a, b, addrA, addrB)
		closeAll(t, b)
		b = n.open(t, addrB, wrong, nil)
		b.Want(addrA, guard.ToSend)
		time.Sleep(10 * time.Second)
		if st := a.state(addrB); st.Since.IsZero() || st.Err == nil || !strings.Contains(st.Err.Error(), "not for its address") || st.At.Before(st.Since) || told.Since != st.Since || told.Began {
			t.Errorf("%+v, %+v", st, told)
		}
		if len(a.States()) != 1 {
			t.Errorf("%+v", a.States())
		}
		closeAll(t, a, b)
	})
}

// TestNotConnected: the error of a connection that is refused, or that is not
// answered, says what may be the reason.
func TestNotConnected(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	own := config(t, ca, testcert.Subject{Addr: addrA.String()})
	for want, err := range map[string]error{"is not secured": syscall.ECONNREFUSED, "a firewall": context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			a := newNetwork().open(t, addrA, own, func(c *keychannel.Config) {
				c.Dial = func(context.Context, netip.Addr) (net.Conn, error) { return nil, &net.OpError{Op: "dial", Err: err} }
			})
			a.Want(addrB, guard.ToSend)
			synctest.Wait()
			if st := a.state(addrB); !errors.Is(st.Err, err) || !strings.Contains(st.Err.Error(), want) || !strings.Contains(st.Err.Error(), "TCP port 4791") {
				t.Error(st.Err)
			}
			closeAll(t, a)
		})
	}
}
