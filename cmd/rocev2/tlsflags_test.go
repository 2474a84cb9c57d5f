package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

// secretFile writes a secret as the help of the tool makes one.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "psk")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const secretText = "b3Igc28gaXQgc2VlbXMsIGJ1dCBpdCBpcyBub3Qu"

// TestPerfIsSecured runs both sides of perf with a secret, and with
// certificates: they say so, with the cipher and the peer.
func TestPerfIsSecured(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), testcert.New(t)
	server, client := freeAddress(), freeAddress()
	cert, key, ca := a.Files(t, dir, "server", testcert.Subject{CN: "the server", Addr: server})
	mine, mineKey, _ := a.Files(t, dir, "client", testcert.Subject{CN: "the client"})
	psk := []string{"--psk", secretFile(t, secretText)}
	for _, c := range []struct {
		args           []string
		server, client []string
		peerOf         [2]string // as the server and the client see it
	}{
		{[]string{"perf", "write_bw", "-n", "50", "--json"}, psk, psk, [2]string{"a peer that has the same secret", "a peer that has the same secret"}},
		{[]string{"perf", "send_lat", "-n", "50", "--json"}, []string{"--tls-cert", cert, "--tls-key", key, "--tls-ca", ca}, []string{"--tls-cert", mine, "--tls-key", mineKey, "--tls-ca", ca}, [2]string{"CN=the client", "CN=the server"}},
		{[]string{"perf", "read_bw", "-n", "50", "-q", "3", "--json"}, []string{"--tls-cert", cert, "--tls-key", key, "--tls-server-only"}, []string{"--tls-ca", ca, "--tls-server-only"}, [2]string{"a client that is not authenticated", "CN=the server"}},
		{[]string{"perf", "write_bw", "-n", "50", "--fault", "drop=1%", "--json"}, psk, psk, [2]string{"a peer that", "a peer that"}},
	} {
		s, r := sidesOn(t, server, client, append(slices.Clone(c.args), c.server...), append(slices.Clone(c.args), c.client...))
		var v struct {
			Secured bool
			Cipher  string
		}
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || !v.Secured || v.Cipher != "AES-GCM-128" {
			t.Errorf("%q: %v: %s", c.args, err, r.out)
		}
		for i, errs := range []string{s.err, r.err} {
			if want := "secured: packets by AES-GCM-128, keys by TLS 1.3 with " + c.peerOf[i]; !strings.Contains(errs, want) {
				t.Errorf("%q, side %d: %q is not in\n%s", c.args, i, want, errs)
			}
		}
	}
	_, plain := pair(t, "perf", "write_bw", "-n", "50", "--json")
	if !strings.Contains(plain.out, `"secured":false}`) {
		t.Errorf("in clear: %s", plain.out)
	}
	s, _ := sides(t, append([]string{"perf", "write_bw", "-n", "50"}, psk...), append([]string{"perf", "write_bw", "-n", "50"}, psk...))
	if !strings.Contains(s.out, " Packets sealed  : AES-GCM-128\n") {
		t.Errorf("the table:\n%s", s.out)
	}
}

// TestPerfRefusesWhatIsNotSecured has clients that do not fit the server: they
// are told why, the server tells of them, and takes the next one.
func TestPerfRefusesWhatIsNotSecured(t *testing.T) {
	t.Parallel()
	good := secretFile(t, secretText)
	s := serve(t, "perf write_bw -n 20", "--psk", good)
	for args, want := range map[string]string{
		"perf write_bw -n 20": "this server takes secured runs alone",
		"perf write_bw -n 20 --psk " + secretFile(t, secretText+"another"): "does not have the pre-shared secret",
	} {
		if r := s.client(t, args); r.code != exitFailure || !strings.Contains(r.err, want) || strings.Contains(r.out, "BW average") {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if r := s.client(t, "perf write_bw -n 20 --psk "+good); r.code != 0 {
		t.Errorf("%+v", r)
	}
	r := s.result()
	if r.code != 0 || !strings.Contains(r.err, "the client is not secured") || !strings.Contains(r.err, "bad certificate") {
		t.Errorf("%+v", r)
	}
	plain := serve(t, "perf write_bw -n 20")
	if r := plain.client(t, "perf write_bw -n 20 --psk "+good); r.code != exitFailure || !strings.Contains(r.err, "this side is in clear: start both with --tls-cert") {
		t.Errorf("a secured client of a server in clear: %+v", r)
	}
	if r := plain.client(t, "perf write_bw -n 20"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := plain.result(); !strings.Contains(r.err, "the peer wants a secured run") {
		t.Errorf("%+v", r)
	}
}

// TestEmptyTLSFlags gives flags that are empty, as a script does whose variable
// is not set: nothing runs in clear.
func TestEmptyTLSFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"perf write_bw", "perf write_bw 127.0.0.1", "region ls 127.0.0.1", "region add 127.0.0.1/a 0 1"} {
		for _, flag := range []string{"--psk", "--tls-cert", "--tls-key", "--tls-ca", "--tls-server-name"} {
			args := append(strings.Fields(command), flag, "")
			if r := invoke(t.Context(), args...); r.code != exitUsage || !strings.Contains(r.err, flag+": given, but empty") {
				t.Errorf("%q: %+v", args, r)
			}
		}
	}
}

// TestAllTLSMistakes has all files be wrong: each is named.
func TestAllTLSMistakes(t *testing.T) {
	t.Parallel()
	r := invoke(t.Context(), "region", "ls", "127.0.0.1", "--tls-cert", "/none", "--tls-key", "/none", "--tls-ca", "/")
	for _, want := range []string{"--tls-cert: open", "\n--tls-key: open", "\n--tls-ca: / is a directory"} {
		if r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("nothing says %q: %+v", want, r)
		}
	}
}

// TestTLSFlags has mistakes in the flags of both commands.
func TestTLSFlags(t *testing.T) {
	t.Parallel()
	dir, a := t.TempDir(), testcert.New(t)
	cert, key, ca := a.Files(t, dir, "x", testcert.Subject{CN: "x"})
	old, oldKey, _ := a.Files(t, dir, "old", testcert.Subject{CN: "old", Expired: true})
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, []byte(secretText), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	psk := secretFile(t, secretText)
	for args, want := range map[string]string{
		"perf write_bw --tls-cert " + cert:                                               "--tls-key: it is missing",
		"perf write_bw --tls-cert " + cert + " --tls-key " + key:                         "--tls-ca: it is missing: a file with the authority that has issued the certificates of clients (with --tls-server-only",
		"perf write_bw --tls-ca " + ca + " 127.0.0.1":                                    "--tls-cert: it is missing: a file with the certificate of this side (with --tls-server-only",
		"perf write_bw --tls-cert " + cert + " --tls-key " + key + " 127.0.0.1":          "--tls-ca: it is missing: a file with the authority that has issued the certificate of the server",
		"perf write_bw --tls-cert " + old + " --tls-key " + oldKey + " --tls-ca " + ca:   "--tls-cert: " + old + " has expired at ",
		"perf write_bw --tls-server-name x --psk " + psk + " 127.0.0.1":                  "--tls-server-name x: a pre-shared secret (--psk) has no names",
		"perf write_bw --tls-server-name x --tls-ca " + ca:                               "--tls-server-name x: a server has",
		"perf write_bw --tls-server-only --psk " + psk:                                   "--tls-server-only: with a pre-shared secret",
		"perf write_bw --shm -d " + freeAddress() + " --psk " + psk:                      "--shm: packets through shared memory are not sealed",
		"perf send_bw -c UD -d " + freeAddress() + " --psk " + psk:                       "a secured run over UD",
		"region ls 127.0.0.1 --psk " + filepath.Join(dir, "none"):                        "--psk: open ",
		"region ls 127.0.0.1 --psk " + psk + " --tls-ca " + ca:                           "--psk: there are also certificates",
		"region ls 127.0.0.1 --tls-ca " + key + " --tls-server-only":                     "--tls-ca: " + key + " has no certificate",
		"region ls 127.0.0.1 --tls-ca " + ca + " --tls-cert " + ca + " --tls-key " + key: "--tls-key: " + key + " with " + ca,
		"region ls 127.0.0.1 --tls-server-name x":                                        "--tls-cert: it is missing",
		"region write 127.0.0.1/a --psk " + secretFile(t, "short"):                       "at least 16",
	} {
		if r := invoke(t.Context(), strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if r := invoke(t.Context(), "perf", "write_bw", "--psk", open); runtime.GOOS != "windows" && (r.code != exitUsage || !strings.Contains(r.err, "chmod 600")) {
		t.Errorf("a secret that others may read: %+v", r)
	}
}
