package secure

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"CN=backup.example", "CN=Erika Muster", "DNS:host.example", "DNS:*.example", "spiffe://example/backup", "https://example"} {
		if n, err := ParseName(s); err != nil || string(n) != s || !IsName(s) {
			t.Errorf("%q: %q, %v", s, n, err)
		}
	}
	for s, want := range map[string]string{
		"":                                 "empty",
		"CN=":                              "empty",
		"DNS: host":                        "blanks",
		"CN=a\nb":                          "cannot be printed",
		"CN=a\x00":                         "cannot be printed",
		"CN=\xff":                          "not UTF-8",
		"backup.example":                   "no name of a certificate",
		"cn=backup":                        "no name of a certificate",
		"://x":                             "no name of a certificate",
		"spiffe:///path":                   "no name of a certificate",
		"CN=" + strings.Repeat("x", 1<<12): "too long",
	} {
		if n, err := ParseName(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %q, %v", s, n, err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	cn := func(names ...string) (n pkix.Name) {
		for _, s := range names {
			n.Names = append(n.Names, pkix.AttributeTypeAndValue{Type: oidCommonName, Value: s})
			n.CommonName = s
		}
		return n
	}
	all := withURIs(t, "spiffe://example/backup", "backup")
	all.Subject, all.DNSNames = cn("backup"), []string{"host.example"}
	for _, c := range []struct {
		what     string
		cert     *x509.Certificate
		verified bool
		want     []Name
	}{
		{"all", all, true, []Name{"CN=backup", "DNS:host.example", "spiffe://example/backup"}},
		{"not verified", all, false, nil},
		{"two common names", &x509.Certificate{Subject: cn("backup", "root")}, true, nil},
		{"names for a terminal", &x509.Certificate{Subject: cn("\x1b[31mred"), DNSNames: []string{"a\nb", "c.example"}}, true, []Name{"DNS:c.example"}},
		{"URIs that look like another kind", withURIs(t, "CN=backup", "CN=x://backup", "DNS:x://backup"), true, nil},
		{"a URI that is written in another way", withURIs(t, "SPIFFE://example/backup", "spiffe://example/%62ackup", "spiffe://example/a b", "spiffe://example/backup?"), true,
			[]Name{"SPIFFE://example/backup", "spiffe://example/%62ackup", "spiffe://example/a b", "spiffe://example/backup?"}},
		{"a URI for a terminal", withURIs(t, "spiffe://example/\x1b", "spiffe://example/b\x00", "spiffe://example/\xff"), true, nil},
		{"wildcards", &x509.Certificate{Subject: cn("*"), DNSNames: []string{"*.example"}}, true, []Name{"CN=*", "DNS:*.example"}},
		{"a name that ends in its middle", &x509.Certificate{Subject: cn("backup\x00.other"), DNSNames: []string{"host.example\x00.other"}}, true, nil},
		{"an empty common name", &x509.Certificate{Subject: cn("")}, true, nil},
		{"blanks around", &x509.Certificate{Subject: cn("backup ")}, true, nil},
		{"none", &x509.Certificate{}, true, nil},
		{"a name that looks like another kind", &x509.Certificate{Subject: cn("DNS:host.example")}, true, []Name{"CN=DNS:host.example"}},
	} {
		state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.cert}}
		if c.verified {
			state.VerifiedChains = [][]*x509.Certificate{{c.cert}}
		}
		if got := Names(&state); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// withURIs returns a certificate with URIs, as they are in its bytes.
func withURIs(t *testing.T, uris ...string) *x509.Certificate {
	t.Helper()
	var names []asn1.RawValue
	for _, u := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: tagURI, Bytes: []byte(u)})
	}
	b, err := asn1.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{Extensions: []pkix.Extension{{Id: oidAltNames, Value: b}}}
	for _, s := range uris { // as package x509 has them
		if u, err := url.Parse(s); err == nil {
			c.URIs = append(c.URIs, u)
		}
	}
	return c
}

// FuzzParseName looks for texts that are two things at once.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"CN=a", "DNS:a", "spiffe://a/b", "any", "10.0.0.0/8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err == nil && (string(n) != s || !IsName(s) || len(s) > maxName) {
			t.Errorf("%q became %q", s, n)
		}
	})
}
