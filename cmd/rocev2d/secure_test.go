package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma"
)

// TestBadCertificatesAtReload has SIGHUP find certificates that are no good:
// the old ones stay, and the log says so.
func TestBadCertificatesAtReload(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGHUP: run it on another system")
	}
	dir, a := t.TempDir(), testcert.New(t)
	addr := loopback()
	cert, key, ca := a.Files(t, dir, "first", testcert.Subject{CN: "first", Addr: addr})
	file := filepath.Join(dir, "rocev2d.toml")
	text := fmt.Sprintf("[admin]\nlisten = \"127.0.0.1:0\"\n[tls]\ncert = %q\nkey = %q\nca = %q\n[[device]]\naddress = %q\n[[region]]\nname = \"mine\"\nsize = 64\nallow = [\"CN=client\"]\n", cert, key, ca, addr)
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(file, text)
	p := start(t, nil, "--config", file)
	p.expect("connections of regions are secured", "CN=first")
	p.expect("msg=ready")
	mine := a.Issue(t, "client", "")
	server := func() string {
		t.Helper()
		d := rdma.Dialer{TLS: &tls.Config{RootCAs: a.Pool, Certificates: []tls.Certificate{mine}}}
		c, err := d.Dial(t.Context(), net.JoinHostPort(addr, "7470"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Region(t.Context(), "mine"); err != nil {
			t.Error(err)
		}
		state, _ := c.ConnectionState()
		return state.PeerCertificates[0].Subject.CommonName
	}
	read := func(name string) string {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	good := read(cert)
	old, oldKey, _ := a.Files(t, dir, "old", testcert.Subject{CN: "old", Addr: addr, Expired: true})
	next, nextKey, _ := a.Files(t, dir, "next", testcert.Subject{CN: "next", Addr: addr})
	goodKey := read(key)
	for _, c := range []struct{ what, cert, key, want string }{
		{"broken", "broken\n", goodKey, "no certificate"},
		{"of another key", read(next), goodKey, "does not match"},
		{"expired", read(old), read(oldKey), "has expired"},
	} {
		put(cert, c.cert)
		put(key, c.key)
		p.hangUp()
		p.expect("nothing has changed", c.want, "tls.")
		if got := server(); got != "first" {
			t.Errorf("%s: the daemon has the certificate of %s", c.what, got)
		}
	}
	put(cert, read(next))
	put(key, read(nextKey))
	p.hangUp()
	p.expect("connections of regions are secured", "CN=next")
	p.expect("msg=reloaded")
	if got := server(); got != "next" {
		t.Errorf("a good one: the daemon has the certificate of %s", got)
	}
	if strings.Contains(strings.Join(p.seen, "\n"), "PRIVATE KEY") || good == "" {
		t.Error("the log has a key")
	}
}

// TestSecuredSettings gives [tls] by flags, and asks what it means.
func TestSecuredSettings(t *testing.T) {
	t.Parallel()
	cert, key, ca := testcert.New(t).Files(t, t.TempDir(), "d", testcert.Subject{CN: "d"})
	addr := loopback()
	code, out, errs := invoke(t.Context(), nil, "--check", "--device", addr, "--admin", "off", "--targets", "off", "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca,
		"--region", "a=64KiB;write;allow=CN=backup;allow=spiffe://example/backup", "--region", "b=64KiB;tls;allow=any", "--region", "c=64KiB")
	for _, want := range []string{"a: 65536 bytes, read-write, for CN=backup, spiffe://example/backup, over secured connections\n", "b: 65536 bytes, read-only, for everybody, over secured connections\n",
		"c: 65536 bytes, read-only, for this host alone\n", "clients by " + ca} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("status %d, %s; nothing says %q:\n%s", code, errs, want, out)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--tls-cert", cert}, "tls.key: it is missing"},
		{[]string{"--tls-cert", "/none", "--tls-key", key, "--tls-ca", ca}, "flag --tls-cert: tls.cert: open /none"},
		{[]string{"--psk", "/none"}, "flag --psk: tls.psk_file: open /none"},
		{[]string{"--region", "a=1;allow=CN=x"}, "flag --region: region.allow: \"CN=x\" is a name of certificates"},
		{[]string{"--region", "a=1;tls"}, "flag --region: region.tls: connections are to be secured"},
	} {
		code, _, errs := invoke(t.Context(), nil, append([]string{"--check", "--device", addr, "--admin", "off"}, c.args...)...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, %s", c.args, code, errs)
		}
	}
}
