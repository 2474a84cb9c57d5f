package server_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/cmd/rocev2d/server/config"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/internal/tlsfiles"
	"github.com/gosoftroce/rocev2/rdma"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/rdma/secure"
	"github.com/gosoftroce/rocev2/verbs"
)

// securedDaemon is a daemon whose connections are secured, and the authority of
// both sides.
type securedDaemon struct {
	*daemon
	ca  *testcert.Authority
	dir string
}

// startSecured starts one with regions.
func startSecured(t *testing.T, list ...config.Region) *securedDaemon {
	t.Helper()
	s := &securedDaemon{ca: testcert.New(t), dir: t.TempDir()}
	s.daemon = start(t, func(c *config.Config) {
		c.Devices[0].Regions = config.DefaultRegionsPort
		c.Regions = list
		c.TLS.Files = s.files(t, c.Devices[0].Address, "first")
	})
	return s
}

// files returns the files of a certificate for the daemon.
func (s *securedDaemon) files(t *testing.T, addr, name string) (f tlsfiles.Files) {
	f.Cert, f.Key, f.CA = s.ca.Files(t, s.dir, name, testcert.Subject{CN: name, Addr: addr})
	return f
}

// dialAs connects with the certificate of a subject, which an authority has
// issued.
func (s *securedDaemon) dialAs(t *testing.T, a *testcert.Authority, who testcert.Subject) (*rdma.Conn, error) {
	t.Helper()
	return s.dialWith(t, &tls.Config{RootCAs: s.ca.Pool, Certificates: []tls.Certificate{a.IssueFor(t, who)}})
}

func (s *securedDaemon) dialWith(t *testing.T, config *tls.Config) (*rdma.Conn, error) {
	t.Helper()
	d := rdma.Dialer{TLS: config}
	c, err := d.Dial(t.Context(), net.JoinHostPort(s.addr.String(), "7470"))
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// sees returns the names of the regions that a client sees.
func sees(t *testing.T, c *rdma.Conn) string {
	t.Helper()
	list, err := c.Regions(t.Context())
	must(t, err)
	var names []string
	for _, r := range list {
		names = append(names, r.Name())
	}
	return strings.Join(names, " ")
}

// TestSecuredRegions has clients with all kinds of certificates, and without,
// come for regions: each gets those that are for it.
func TestSecuredRegions(t *testing.T) {
	t.Parallel()
	of := func(name string, list ...string) config.Region {
		return allow(t, config.Region{Name: name, Size: 4096, Access: config.ReadWrite}, list...)
	}
	sealed := of("sealed")
	sealed.TLS = true
	s := startSecured(t, of("open"), sealed, of("cn", "CN=backup"), of("dns", "DNS:host.example"), of("uri", "spiffe://example/backup"), of("net", "192.0.2.0/24", "CN=other.example"), of("here", "127.0.0.0/8", "CN=other.example"))
	for _, c := range []struct {
		who  testcert.Subject
		want string
	}{
		{testcert.Subject{CN: "backup"}, "cn here open sealed"},
		{testcert.Subject{CN: "other"}, "here open sealed"},
		{testcert.Subject{CN: "Backup", DNS: "host.example"}, "dns here open sealed"},
		{testcert.Subject{CN: "DNS:host.example", DNS: "*.example"}, "here open sealed"},
		{testcert.Subject{CN: "x", URI: "spiffe://example/backup"}, "here open sealed uri"},
		{testcert.Subject{CN: "spiffe://example/backup", URI: "spiffe://example/backup/more"}, "here open sealed"},
	} {
		conn, err := s.dialAs(t, s.ca, c.who)
		must(t, err)
		if got := sees(t, conn); got != c.want {
			t.Errorf("%+v sees %q, want %q", c.who, got, c.want)
		}
		if _, err := conn.Region(t.Context(), "net"); !errors.Is(err, rdma.ErrPermission) {
			t.Errorf("%+v: a region of others: %v", c.who, err)
		}
	}
	clear := s.dial()
	if got := sees(t, clear); got != "open" {
		t.Errorf("a client in clear sees %q", got)
	}
	if _, err := clear.Region(t.Context(), "cn"); err == nil {
		t.Error("a client in clear has a region for secured connections")
	}
	conns, total := s.items("connections")
	names := 0
	for _, c := range conns {
		if by, ok := c["tls"].(map[string]any); ok && by["cipher"] == "TLS_AES_128_GCM_SHA256" && strings.HasPrefix(by["name"].(string), "CN=") {
			names++
		}
	}
	if total != 7 || names != 6 {
		t.Errorf("%d connections, %d of them secured: %v", total, names, conns)
	}
	_, _, metrics := s.ask("GET", "/metrics", "")
	for _, want := range []string{"rocev2_secured_clients 6", "rocev2_secured_total 6", "rocev2_certificate_expiry_seconds"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if _, _, page := s.ask("GET", "/", ""); !strings.Contains(page, "TLS_AES_128_GCM_SHA256, CN=backup") || !strings.Contains(page, "CN=backup, secured") {
		t.Error("the page does not show what is secured")
	}
	errs, _ := s.items("errors")
	if !slices.ContainsFunc(errs, func(e map[string]any) bool {
		return strings.Contains(e["what"].(string), "region cn") && strings.Contains(e["remedy"].(string), "secured connections")
	}) {
		t.Errorf("errors: %v", errs)
	}
}

// TestNotSecuredRegions has clients that cannot be secured: all are refused,
// with words on both sides.
func TestNotSecuredRegions(t *testing.T) {
	t.Parallel()
	s := startSecured(t, allow(t, config.Region{Name: "mine", Size: 4096, Access: config.ReadOnly}, "CN=backup"))
	other := testcert.New(t)
	secret, err := secure.PSK([]byte("a secret of enough bytes"))
	must(t, err)
	_, old := s.dialAs(t, s.ca, testcert.Subject{CN: "backup", Expired: true})
	_, foreign := s.dialAs(t, other, testcert.Subject{CN: "backup"})
	_, none := s.dialWith(t, &tls.Config{RootCAs: s.ca.Pool})
	_, distrusts := s.dialWith(t, &tls.Config{RootCAs: other.Pool, Certificates: []tls.Certificate{s.ca.Issue(t, "backup", "")}})
	_, name := s.dialWith(t, &tls.Config{RootCAs: s.ca.Pool, ServerName: "elsewhere", Certificates: []tls.Certificate{s.ca.Issue(t, "backup", "")}})
	_, psk := s.dialWith(t, secret)
	_, clear := s.dialWith(t, nil)
	for _, c := range []struct {
		what string
		err  error
		want string
	}{
		{"expired", old, "expired"},
		{"of another authority", foreign, "does not trust the authority"},
		{"no certificate", none, "wants a certificate"},
		{"the daemon is of another authority", distrusts, "not of an authority that this side trusts"},
		{"another name", name, "another name"},
		{"a secret", psk, "pre-shared secret"},
		{"in clear", clear, "for secured connections"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: the client says %v, want %q", c.what, c.err, c.want)
		}
	}
	until(t, "all are recorded", func() bool {
		errs, _ := s.items("errors")
		n := 0
		for _, e := range errs {
			if strings.Contains(e["meaning"].(string), "could not be secured") {
				n += int(e["count"].(float64))
			}
		}
		return n == 6
	})
	if _, _, metrics := s.ask("GET", "/metrics", ""); !strings.Contains(metrics, "rocev2_secured_failures_total 6") || !strings.Contains(metrics, "rocev2_secured_clients 0") {
		t.Error("the metrics do not count the failures")
	}
	// And the reverse: TLS against a daemon that has none.
	plain := withRegions(t, config.Region{Name: "open", Size: 64, Access: config.ReadOnly})
	p := &securedDaemon{daemon: plain, ca: s.ca}
	if _, err := p.dialAs(t, s.ca, testcert.Subject{CN: "backup"}); err == nil || !strings.Contains(err.Error(), "does not secure connections") {
		t.Errorf("TLS against a daemon in clear: %v", err)
	}
}

// TestReloadOfCertificates takes new certificates for new connections; those
// that are there stay.
func TestReloadOfCertificates(t *testing.T) {
	t.Parallel()
	s := startSecured(t, allow(t, config.Region{Name: "mine", Size: 64, Access: config.ReadWrite}, "CN=backup"))
	was, err := s.dialAs(t, s.ca, testcert.Subject{CN: "backup"})
	must(t, err)
	region := regionNamed(t, was, "mine")
	next := settings(s.addr)
	next.Devices[0].Regions = config.DefaultRegionsPort
	next.Regions = s.Config().Regions
	next.TLS.Files = s.files(t, s.addr.String(), "second")
	must(t, next.Check())
	restart, err := s.Reload(next)
	if err != nil || restart != nil {
		t.Fatalf("%v, %v", restart, err)
	}
	now, err := s.dialAs(t, s.ca, testcert.Subject{CN: "backup"})
	must(t, err)
	if state, _ := now.ConnectionState(); state.PeerCertificates[0].Subject.CommonName != "second" {
		t.Errorf("a new connection has the certificate of %s", state.PeerCertificates[0].Subject)
	}
	must(t, region.Write(t.Context(), []byte("still"), 0))
	// Whether there is any is for a restart.
	bare := settings(s.addr)
	bare.Devices[0].Regions = config.DefaultRegionsPort
	if restart, err := s.Reload(bare); err != nil || !slices.Contains(restart, "tls") {
		t.Errorf("without [tls]: %v, %v", restart, err)
	}
	if _, err := s.dialAs(t, s.ca, testcert.Subject{CN: "backup"}); err != nil {
		t.Errorf("after a reload without [tls]: %v", err)
	}
}

// TestSilentSecuredClients has many clients that want to be secured, and then
// say nothing: others are served.
func TestSilentSecuredClients(t *testing.T) {
	t.Parallel()
	s := startSecured(t, allow(t, config.Region{Name: "mine", Size: 64, Access: config.ReadWrite}, "CN=backup"))
	dev, err := verbs.OpenAddr(loopback(), verbs.Config{})
	must(t, err)
	defer dev.Close()
	hello := append([]byte("RMSG\x01\x02"), make([]byte, 10)...) // as go doc rdma has it: it secures
	binary.BigEndian.PutUint16(hello[6:], 2)
	binary.BigEndian.PutUint32(hello[8:], 4096)
	to := netip.AddrPortFrom(s.addr, config.DefaultRegionsPort)
	for _, q := range equip(t, dev, 300) {
		_, err := cm.Dial(t.Context(), q, to, cm.DialConfig{PrivateData: hello})
		if err != nil && !errors.Is(err, context.Canceled) {
			must(t, err)
		}
	}
	c, err := s.dialAs(t, s.ca, testcert.Subject{CN: "backup"})
	must(t, err)
	if got := sees(t, c); got != "mine" {
		t.Errorf("sees %q", got)
	}
}

// TestSecretOfDaemon has a secret in place of certificates.
func TestSecretOfDaemon(t *testing.T) {
	t.Parallel()
	sealed := config.Region{Name: "sealed", Size: 64, Access: config.ReadOnly, TLS: true}
	s := &securedDaemon{daemon: start(t, func(c *config.Config) {
		c.Devices[0].Regions = config.DefaultRegionsPort
		c.Regions = []config.Region{sealed}
		c.TLS.PSK = writeSecret(t, "a secret of enough bytes")
	})}
	right, err := secure.PSK([]byte("a secret of enough bytes"))
	must(t, err)
	wrong, err := secure.PSK([]byte("another, of enough bytes"))
	must(t, err)
	c, err := s.dialWith(t, right)
	must(t, err)
	if got := sees(t, c); got != "sealed" {
		t.Errorf("sees %q", got)
	}
	if _, err := s.dialWith(t, wrong); !errors.Is(err, secure.ErrOtherPSK) {
		t.Errorf("another secret: %v", err)
	}
}

func writeSecret(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "psk")
	must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	return file
}
