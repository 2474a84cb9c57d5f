package secure

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
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
	uri, _ := url.Parse("spiffe://example/backup")
	relative, _ := url.Parse("backup")
	all := &x509.Certificate{Subject: cn("backup"), DNSNames: []string{"host.example"}, URIs: []*url.URL{uri, relative}}
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
		{"a URI that looks like another kind", &x509.Certificate{URIs: []*url.URL{{Opaque: "CN=backup"}}}, true, nil},
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
