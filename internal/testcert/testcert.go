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
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
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
	return a.IssueFor(t, Subject{CN: name, Addr: addr})
}

// Subject is what a certificate is for.
type Subject struct {
	CN      string // common name
	Addr    string // IP address; "": none
	DNS     string // DNS name; "": none
	URI     string // "": none
	Expired bool   // half an hour ago
}

// IssueFor returns a certificate for a subject.
func (a *Authority) IssueFor(t testing.TB, s Subject) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: s.CN}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: a.cert == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if s.Expired {
		template.NotAfter = time.Now().Add(-30 * time.Minute)
	}
	if s.Addr != "" {
		template.IPAddresses = []net.IP{net.ParseIP(s.Addr)}
	}
	if s.DNS != "" {
		template.DNSNames = []string{s.DNS}
	}
	if s.URI != "" {
		u, err := url.Parse(s.URI)
		check(t, err)
		template.URIs = []*url.URL{u}
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

// Files writes the certificate of the authority, and one that it issues, into
// files of a directory: NAME-ca.pem, NAME-cert.pem and NAME-key.pem.
func (a *Authority) Files(t testing.TB, dir, name string, s Subject) (cert, key, ca string) {
	t.Helper()
	c := a.IssueFor(t, s)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	check(t, err)
	write := func(what, kind string, der []byte) string {
		file := filepath.Join(dir, name+"-"+what+".pem")
		check(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	return write("cert", "CERTIFICATE", c.Certificate[0]), write("key", "PRIVATE KEY", der), write("ca", "CERTIFICATE", a.cert.Raw)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
