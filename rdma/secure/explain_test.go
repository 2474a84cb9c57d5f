package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

// TestExplain has handshakes fail for each reason, and compares what the two
// sides say.
func TestExplain(t *testing.T) {
	t.Parallel()
	a, other := testcert.New(t), testcert.New(t)
	server := func(s testcert.Subject) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{a.IssueFor(t, s)}, ClientCAs: a.Pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	}
	client := func(by *testcert.Authority, s testcert.Subject) *tls.Config {
		c := &tls.Config{RootCAs: a.Pool, ServerName: "192.0.2.1"}
		if by != nil {
			c.Certificates = []tls.Certificate{by.IssueFor(t, s)}
		}
		return c
	}
	good, mine := testcert.Subject{CN: "server", Addr: "192.0.2.1"}, testcert.Subject{CN: "client"}
	old := client(a, mine)
	old.MaxVersion = tls.VersionTLS12
	foreign := client(a, mine)
	foreign.RootCAs = other.Pool
	for what, c := range map[string]struct {
		client, server     *tls.Config
		atClient, atServer string
	}{
		"no certificate":     {client(nil, mine), server(good), "the peer wants a certificate of this side", "the client has shown no certificate"},
		"another authority":  {client(other, mine), server(good), "the peer does not trust the authority", "is not of an authority that this side trusts"},
		"a foreign server":   {foreign, server(good), "is not of an authority that this side trusts", "the peer refuses the certificate"},
		"expired":            {client(a, testcert.Subject{CN: "client", Expired: true}), server(good), "as expired", "has expired"},
		"an expired server":  {client(a, mine), server(testcert.Subject{CN: "server", Addr: "192.0.2.1", Expired: true}), "has expired", "the peer refuses the certificate"},
		"another name":       {client(a, mine), server(testcert.Subject{CN: "server", DNS: "server.example"}), "is for another name", "the peer refuses the certificate"},
		"an old client":      {old, server(good), "does not speak TLS 1.3", "versions"},
		"names for terminal": {client(a, mine), server(testcert.Subject{CN: "server", DNS: "\x1b[31mred\x07"}), "is for another name", "the peer refuses the certificate"},
		"names without end":  {client(a, mine), server(testcert.Subject{CN: "server", DNS: strings.Repeat("x", 10_000)}), "is for another name", "the peer refuses the certificate"},
	} {
		if what == "names for terminal" || what == "names without end" {
			c.client.ServerName = "server.example"
		}
		_, _, atClient, atServer := shake(t, c.client, c.server)
		for _, s := range []struct {
			err  error
			want string
		}{{atClient, c.atClient}, {atServer, c.atServer}} {
			said := Explain(s.err)
			if said == nil || !strings.Contains(said.Error(), s.want) || !errors.Is(said, s.err) {
				t.Errorf("%s: %v; want %q", what, said, s.want)
			}
			if said != nil && (strings.ContainsAny(said.Error(), "\x1b\x07\n") || len(said.Error()) > 600) {
				t.Errorf("%s: %q", what, said)
			}
		}
	}
	if Explain(nil) != nil {
		t.Error("no error is explained")
	}
	var host x509.HostnameError
	if err := Explain(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}); !errors.As(err, &host) {
		t.Errorf("the cause of %v is not found", err)
	}
}
