package keychannel_test

import (
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/transport/guard"
	"github.com/gosoftroce/rocev2/transport/keychannel"
)

// TestForgetFailing: a peer that there never were keys of is forgotten some
// time after the last try, and not while it is tried.
func TestForgetFailing(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	one := config(t, ca, testcert.Subject{Addr: addrA.String()})
	synctest.Test(t, func(t *testing.T) {
		a := newNetwork().open(t, addrA, one, nil)
		for range 20 {
			a.Want(addrB, guard.ToSend)
			time.Sleep(time.Minute)
		}
		if st := a.state(addrB); st.Err == nil {
			t.Errorf("%+v", st)
		}
		time.Sleep(15 * time.Minute)
		if all := a.States(); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		closeAll(t, a)
	})
}

// TestCertificateForOneDirection: a configuration that has a certificate for
// those that connect alone, or alone to connect with, is an error.
func TestCertificateForOneDirection(t *testing.T) {
	t.Parallel()
	ca := testcert.New(t)
	both := config(t, ca, testcert.Subject{Addr: addrA.String()})
	cert := both.Certificates[0]
	both.Certificates = nil
	both.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }
	server := both.Clone()
	both.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	client := both.Clone()
	client.GetCertificate = nil
	for _, c := range []*tls.Config{server, client} {
		if k, err := keychannel.Open(keychannel.Config{Addr: addrA, TLS: c, Table: guard.NewTable()}); err == nil {
			t.Error("it was opened")
			k.Close()
		}
	}
	two := config(t, ca, testcert.Subject{Addr: addrB.String()})
	for _, begins := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork()
			a, b := n.open(t, addrA, both, nil), n.open(t, addrB, two, nil)
			if begins {
				a.Want(addrB, guard.ToSend)
			} else {
				b.Want(addrA, guard.ToSend)
			}
			synctest.Wait()
			if a.state(addrB).Since.IsZero() || b.state(addrA).Since.IsZero() {
				t.Errorf("it begins %v: no keys", begins)
			}
			closeAll(t, a, b)
		})
	}
}
