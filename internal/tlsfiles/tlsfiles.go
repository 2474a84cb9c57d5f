// Package tlsfiles makes configurations of TLS from what users name: files with
// certificates, keys, authorities, and pre-shared secrets. What is wrong with
// one shows when it is read, and not when a peer comes.
package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"github.com/gosoftroce/rocev2/internal/regular"
	"github.com/gosoftroce/rocev2/rdma/secure"
)

// Files are the files of one side. With PSK there are no others.
type Files struct {
	Cert string // PEM: certificate of this side, then those up to its authority
	Key  string // PEM: the private key of the first
	CA   string // PEM: authorities that may have issued the certificate of the peer
	PSK  string // a secret that both sides have

	// ServerOnly says that clients need no certificate: they are not
	// authenticated. Those that have one show it.
	ServerOnly bool
}

// The parts of Files that an Error is about.
const (
	Cert       = "cert"
	Key        = "key"
	CA         = "ca"
	PSK        = "psk"
	ServerOnly = "server-only"
)

// Error says what is wrong with a part of Files.
type Error struct {
	Part string // Cert, Key, CA, PSK or ServerOnly
	Err  error
}

func (e *Error) Error() string { return e.Part + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Mistakes is what is wrong with Files, all of it.
type Mistakes []*Error

func (m Mistakes) Error() string {
	var lines []string
	for _, e := range m {
		lines = append(lines, e.Error())
	}
	return strings.Join(lines, "\n")
}

func (m *Mistakes) add(part string, err error) { *m = append(*m, &Error{part, err}) }

func (m *Mistakes) addf(part, format string, args ...any) { m.add(part, fmt.Errorf(format, args...)) }

// Given reports whether any file is named, so that connections are secured.
func (f *Files) Given() bool { return *f != Files{} }

// Client returns the configuration of a side that dials a server of a name. An
// error is of type Mistakes.
func (f *Files) Client(serverName string) (*tls.Config, error) {
	if f.PSK != "" {
		return f.secret()
	}
	var m Mistakes
	c := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: serverName}
	if !f.ServerOnly || f.Cert+f.Key != "" {
		c.Certificates = f.pair(&m)
	}
	if f.CA == "" {
		m.addf(CA, "it is missing: a file with the authority that has issued the certificate of the server")
	} else {
		c.RootCAs = f.authorities(&m)
	}
	return m.or(c)
}

// Server returns the configuration of a side that listens. An error is of type
// Mistakes.
func (f *Files) Server() (*tls.Config, error) {
	if f.PSK != "" {
		return f.secret()
	}
	var m Mistakes
	c := &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert}
	c.Certificates = f.pair(&m)
	switch {
	case f.CA == "" && f.ServerOnly:
		c.ClientAuth = tls.NoClientCert
	case f.CA == "":
		m.addf(CA, "it is missing: a file with the authority that has issued the certificates of clients")
	default:
		if f.ServerOnly {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
		c.ClientCAs = f.authorities(&m)
	}
	return m.or(c)
}

// or returns the mistakes, or if there are none a configuration.
func (m Mistakes) or(c *tls.Config) (*tls.Config, error) {
	if len(m) > 0 {
		return nil, m
	}
	return c, nil
}

// secret returns the configuration of both sides with a pre-shared secret.
func (f *Files) secret() (*tls.Config, error) {
	var m Mistakes
	if f.Cert+f.Key+f.CA != "" {
		m.addf(PSK, "there are also certificates: a connection is secured by a pre-shared secret, or by certificates")
	}
	if f.ServerOnly {
		m.addf(ServerOnly, "with a pre-shared secret both sides are authenticated")
	}
	var c *tls.Config
	secret, err := readSecret(f.PSK)
	if err == nil {
		if c, err = secure.PSK(secret); err != nil {
			err = fmt.Errorf("%s: %w; %s", f.PSK, err, howToMake(f.PSK))
		}
	}
	if err != nil {
		m.add(PSK, err)
	}
	return m.or(c)
}

// pair reads the certificate of this side and its key.
func (f *Files) pair(m *Mistakes) []tls.Certificate {
	cert, key := f.cert(m), f.key(m)
	if cert == nil || key == nil {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		m.addf(Key, "%s with %s: %w", f.Key, f.Cert, err)
		return nil
	}
	now := time.Now()
	switch leaf := pair.Leaf; {
	case now.After(leaf.NotAfter):
		m.addf(Cert, "%s has expired at %v", f.Cert, leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		m.addf(Cert, "%s does not hold before %v", f.Cert, leaf.NotBefore)
	}
	return []tls.Certificate{pair}
}

// cert returns what is in the file of the certificate, nil if it is wrong.
func (f *Files) cert(m *Mistakes) []byte {
	if f.Cert == "" {
		m.addf(Cert, "it is missing: a file with the certificate of this side")
		return nil
	}
	b, err := regular.Read(f.Cert, maxFile)
	if err == nil {
		_, err = certificates(f.Cert, b)
	}
	if err != nil {
		m.add(Cert, err)
		return nil
	}
	return b
}

// key returns what is in the file of the key, nil if it is wrong.
func (f *Files) key(m *Mistakes) []byte {
	if f.Key == "" {
		of := f.Cert
		if of == "" {
			of = "the certificate of this side"
		}
		m.addf(Key, "it is missing: the file with the private key of %s", of)
		return nil
	}
	b, err := readPrivate(f.Key, maxFile, "another certificate with another key")
	if err == nil && bytes.Contains(b, []byte("ENCRYPTED")) {
		err = fmt.Errorf("%s is encrypted by a password, and there is no way to ask for one: give the key in clear, in a file that only this user can read", f.Key)
	}
	if err != nil {
		m.add(Key, err)
		return nil
	}
	return b
}

// authorities reads certificates of authorities.
func (f *Files) authorities(m *Mistakes) *x509.CertPool {
	b, err := regular.Read(f.CA, maxFile)
	var list []*x509.Certificate
	if err == nil {
		list, err = certificates(f.CA, b)
	}
	if err != nil {
		m.add(CA, err)
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool
}

// certificates parses PEM: all certificates in it, at least one.
func certificates(file string, b []byte) (list []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue // keys may stand in the same file
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d: %w", file, len(list)+1, err)
		}
		list = append(list, c)
	}
	if list == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM form (-----BEGIN CERTIFICATE-----)", file)
	}
	return list, nil
}

// Limits of files, in bytes.
const (
	maxFile   = 1 << 20
	maxSecret = 4096
)

// readPrivate reads a file that is for this user alone. If other users could
// read it, another file should take its place.
func readPrivate(file string, most int64, another string) ([]byte, error) {
	r, err := regular.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	st, err := r.Stat()
	if err != nil {
		return nil, err
	}
	if bad := mayNot(st); bad != 0 {
		return nil, fmt.Errorf("others may read or write %s (mode %04o): chmod %o %[1]s, and if it has been so for long, make %[4]s", file, st.Mode().Perm(), st.Mode().Perm()&^bad, another)
	}
	return regular.ReadOpen(r, most)
}

// mayNot returns the rights to a private file that there should not be: all of
// others and of the group. A group may read the file of another user: so root
// gives the key to a daemon.
func mayNot(st fs.FileInfo) fs.FileMode {
	switch {
	case runtime.GOOS == "windows": // modes say nothing of rights
		return 0
	case isOfAnother(st):
		return st.Mode().Perm() & 0o037
	}
	return st.Mode().Perm() & 0o077
}

// readSecret reads a secret. The end of its line is not of it.
func readSecret(file string) ([]byte, error) {
	b, err := readPrivate(file, maxSecret, "another one")
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; %s", err, howToMake(file))
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), err
}

// howToMake says how a user makes a secret.
func howToMake(file string) string {
	return fmt.Sprintf("to make one: (umask 077; head -c 32 /dev/urandom | base64 > %s)", file)
}
