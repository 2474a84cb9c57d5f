// Package testcert issues certificates for tests of connections that TLS
// secures.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority issues certificates, which are good for an hour.
type Authority struct {
	Pool *x509.CertPool // of the authority itself

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{Pool: x509.NewCertPool()}
	c := a.Issue(t, "authority", "")
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	a.Pool.AddCert(a.cert)
	return a
}

// Issue returns a certificate for a name, and for an IP address unless that is
// "".
func (a *Authority) Issue(t testing.TB, name, addr string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: a.cert == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if addr != "" {
		template.IPAddresses = []net.IP{net.ParseIP(addr)}
	}
	parent, by := template, key
	if a.cert != nil {
		parent, by = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	check(t, err)
	leaf, err := x509.ParseCertificate(der)
	check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
