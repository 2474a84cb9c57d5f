package tlsfiles

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	return file
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), testcert.New(t)
	cert, key, ca := a.Files(t, dir, "host", testcert.Subject{CN: "host", Addr: "192.0.2.1"})
	f := Files{Cert: cert, Key: key, CA: ca}
	s, err := f.Server()
	if err != nil || s.ClientAuth != tls.RequireAndVerifyClientCert || s.ClientCAs == nil || len(s.Certificates) != 1 || s.MinVersion != tls.VersionTLS13 {
		t.Errorf("server: %v", err)
	}
	c, err := f.Client("192.0.2.1")
	if err != nil || c.RootCAs == nil || c.ServerName != "192.0.2.1" || c.InsecureSkipVerify || len(c.Certificates) != 1 {
		t.Errorf("client: %v", err)
	}
	only := Files{CA: ca, ServerOnly: true}
	if c, err := only.Client("x"); err != nil || len(c.Certificates) != 0 {
		t.Errorf("a client without a certificate: %v", err)
	}
	only = Files{Cert: cert, Key: key, ServerOnly: true}
	if s, err := only.Server(); err != nil || s.ClientAuth != tls.NoClientCert {
		t.Errorf("a server that authenticates no clients: %v", err)
	}
	only.CA = ca
	if s, err := only.Server(); err != nil || s.ClientAuth != tls.VerifyClientCertIfGiven {
		t.Errorf("a server that takes certificates: %v", err)
	}
	psk := Files{PSK: write(t, "psk", strings.Repeat("s", 16)+"\n", 0o600)}
	if c, err := psk.Client(""); err != nil || c.VerifyConnection == nil {
		t.Errorf("a secret: %v", err)
	}
}

// TestMistakes has each file be wrong in each way: the error says which it is.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), testcert.New(t)
	cert, key, ca := a.Files(t, dir, "host", testcert.Subject{CN: "host"})
	_, otherKey, _ := a.Files(t, dir, "other", testcert.Subject{CN: "other"})
	old, oldKey, _ := a.Files(t, dir, "old", testcert.Subject{CN: "old", Expired: true})
	text, huge := write(t, "text", "hello", 0o600), write(t, "huge", strings.Repeat("x", maxFile+1), 0o600)
	broken := write(t, "broken", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0o600)
	encrypted := write(t, "encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", 0o600)
	secret := strings.Repeat("s", 32)
	hostKey, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	open, groups := write(t, "open", string(hostKey), 0o644), write(t, "groups", string(hostKey), 0o640)
	for _, c := range []struct {
		f          Files
		part, want string
		unix       bool
	}{
		{f: Files{Cert: cert}, part: Key, want: "missing"},
		{f: Files{Key: key, CA: ca}, part: Cert, want: "missing"},
		{f: Files{Cert: cert, Key: key}, part: CA, want: "missing"},
		{f: Files{CA: ca}, part: Cert, want: "missing"},
		{f: Files{Cert: dir + "/none", Key: key, CA: ca}, part: Cert, want: "no such file"},
		{f: Files{Cert: cert, Key: dir + "/none", CA: ca}, part: Key, want: "no such file"},
		{f: Files{Cert: cert, Key: key, CA: dir + "/none"}, part: CA, want: "no such file"},
		{f: Files{Cert: text, Key: key, CA: ca}, part: Cert, want: "no certificate"},
		{f: Files{Cert: broken, Key: key, CA: ca}, part: Cert, want: "certificate 1"},
		{f: Files{Cert: cert, Key: key, CA: text}, part: CA, want: "no certificate"},
		{f: Files{Cert: cert, Key: key, CA: broken}, part: CA, want: "certificate 1"},
		{f: Files{Cert: cert, Key: text, CA: ca}, part: Key, want: "text"},
		{f: Files{Cert: cert, Key: otherKey, CA: ca}, part: Key, want: "does not match"},
		{f: Files{Cert: cert, Key: encrypted, CA: ca}, part: Key, want: "encrypted by a password"},
		{f: Files{Cert: huge, Key: key, CA: ca}, part: Cert, want: "more than"},
		{f: Files{Cert: old, Key: oldKey, CA: ca}, part: Cert, want: "has expired"},
		{f: Files{PSK: dir + "/none"}, part: PSK, want: "head -c 32 /dev/urandom"},
		{f: Files{PSK: text}, part: PSK, want: "at least 16"},
		{f: Files{PSK: huge}, part: PSK, want: "more than"},
		{f: Files{PSK: text, CA: ca}, part: PSK, want: "also certificates"},
		{f: Files{PSK: write(t, "read", secret, 0o640)}, part: PSK, want: "chmod 600", unix: true},
		{f: Files{PSK: write(t, "written", secret, 0o602)}, part: PSK, want: "mode 0602", unix: true},
		{f: Files{Cert: cert, Key: open, CA: ca}, part: Key, want: "chmod 600", unix: true},
		{f: Files{Cert: cert, Key: groups, CA: ca}, part: Key, want: "mode 0640", unix: true},
		{f: Files{Cert: dir, Key: key, CA: ca}, part: Cert, want: "is a directory"},
		{f: Files{Cert: cert, Key: dir, CA: ca}, part: Key, want: "is a directory"},
		{f: Files{Cert: cert, Key: key, CA: dir}, part: CA, want: "is a directory"},
		{f: Files{PSK: dir}, part: PSK, want: "is a directory"},
		{f: Files{PSK: write(t, "s", secret, 0o600), ServerOnly: true}, part: ServerOnly, want: "both sides"},
	} {
		if c.unix && runtime.GOOS == "windows" {
			continue
		}
		for side, make := range map[string]func() (*tls.Config, error){
			"server": c.f.Server, "client": func() (*tls.Config, error) { return c.f.Client("host") },
		} {
			_, err := make()
			var m Mistakes
			if !errors.As(err, &m) || !slices.ContainsFunc(m, func(e *Error) bool { return e.Part == c.part && strings.Contains(e.Error(), c.want) }) {
				t.Errorf("%s of %+v: %v; want %s: %q", side, c.f, err, c.part, c.want)
			}
		}
	}
}

// TestAllMistakes has several files be wrong: all of them are named.
func TestAllMistakes(t *testing.T) {
	t.Parallel()
	text := write(t, "text", "hello", 0o600)
	for _, c := range []struct {
		f    Files
		want []string
	}{
		{Files{Cert: text, Key: "/none", CA: text}, []string{Cert, Key, CA}},
		{Files{CA: "/none"}, []string{Cert, Key, CA}},
		{Files{PSK: text, ServerOnly: true, CA: text}, []string{PSK, ServerOnly, PSK}},
	} {
		_, err := c.f.Server()
		var m Mistakes
		if !errors.As(err, &m) || strings.Count(err.Error(), "\n") != len(m)-1 {
			t.Errorf("%+v: %v", c.f, err)
		}
		var got []string
		for _, e := range m {
			got = append(got, e.Part)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q: %v", c.f, got, c.want, err)
		}
	}
}
