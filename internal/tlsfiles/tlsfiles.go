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
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"

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

func wrong(part, format string, args ...any) error {
	return &Error{part, fmt.Errorf(format, args...)}
}

// Given reports whether any file is named, so that connections are secured.
func (f *Files) Given() bool { return *f != Files{} }

// Client returns the configuration of a side that dials a server of a name.
func (f *Files) Client(serverName string) (*tls.Config, error) {
	c, err := f.both(!f.ServerOnly || f.Cert+f.Key != "")
	if err != nil || f.PSK != "" {
		return c, err
	}
	if f.CA == "" {
		return nil, wrong(CA, "it is missing: a file with the authority that has issued the certificate of the server")
	}
	if c.RootCAs, err = authorities(f.CA); err != nil {
		return nil, err
	}
	c.ServerName = serverName
	return c, nil
}

// Server returns the configuration of a side that listens.
func (f *Files) Server() (*tls.Config, error) {
	c, err := f.both(true)
	if err != nil || f.PSK != "" {
		return c, err
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	switch {
	case f.CA == "" && f.ServerOnly:
		c.ClientAuth = tls.NoClientCert
		return c, nil
	case f.CA == "":
		return nil, wrong(CA, "it is missing: a file with the authority that has issued the certificates of clients")
	case f.ServerOnly:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	c.ClientCAs, err = authorities(f.CA)
	return c, err
}

// both returns what both sides have.
func (f *Files) both(certificate bool) (*tls.Config, error) {
	if f.PSK != "" {
		switch {
		case f.Cert+f.Key+f.CA != "":
			return nil, wrong(PSK, "there are also certificates: a connection is secured by a pre-shared secret, or by certificates")
		case f.ServerOnly:
			return nil, wrong(ServerOnly, "with a pre-shared secret both sides are authenticated")
		}
		secret, err := readSecret(f.PSK)
		if err != nil {
			return nil, &Error{PSK, err}
		}
		c, err := secure.PSK(secret)
		if err != nil {
			return nil, wrong(PSK, "%s: %w; %s", f.PSK, err, howToMake(f.PSK))
		}
		return c, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if !certificate {
		return c, nil
	}
	pair, err := f.pair()
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// pair reads the certificate of this side and its key.
func (f *Files) pair() (pair tls.Certificate, err error) {
	switch {
	case f.Cert == "":
		return pair, wrong(Cert, "it is missing: a file with the certificate of this side")
	case f.Key == "":
		return pair, wrong(Key, "it is missing: the file with the private key of %s", f.Cert)
	}
	cert, err := read(f.Cert)
	if err != nil {
		return pair, &Error{Cert, err}
	}
	if _, err := certificates(f.Cert, cert); err != nil {
		return pair, &Error{Cert, err}
	}
	key, err := read(f.Key)
	if err != nil {
		return pair, &Error{Key, err}
	}
	if bytes.Contains(key, []byte("ENCRYPTED")) {
		return pair, wrong(Key, "%s is encrypted by a password, and there is no way to ask for one: give the key in clear, in a file that only this user can read", f.Key)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, wrong(Key, "%s with %s: %w", f.Key, f.Cert, err)
	}
	now := time.Now()
	switch leaf := pair.Leaf; {
	case now.After(leaf.NotAfter):
		return pair, wrong(Cert, "%s has expired at %v", f.Cert, leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		return pair, wrong(Cert, "%s does not hold before %v", f.Cert, leaf.NotBefore)
	}
	return pair, nil
}

// authorities reads certificates of authorities.
func authorities(file string) (*x509.CertPool, error) {
	b, err := read(file)
	if err != nil {
		return nil, &Error{CA, err}
	}
	list, err := certificates(file, b)
	if err != nil {
		return nil, &Error{CA, err}
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, nil
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

func read(file string) ([]byte, error) {
	r, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return limited(r, maxFile)
}

func limited(r *os.File, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(b)) > most:
		return nil, fmt.Errorf("%s has more than %d bytes", r.Name(), most)
	}
	return b, nil
}

// readSecret reads a secret. The end of its line is not of it.
func readSecret(file string) ([]byte, error) {
	r, err := os.Open(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; %s", err, howToMake(file))
		}
		return nil, err
	}
	defer r.Close()
	st, err := r.Stat()
	if err != nil {
		return nil, err
	}
	if m := st.Mode().Perm(); m&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("others may read or write %s (mode %04o): chmod 600 %[1]s, and if it has been so for long, make another one", file, m)
	}
	b, err := limited(r, maxSecret)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")), nil
}

// howToMake says how a user makes a secret.
func howToMake(file string) string {
	return fmt.Sprintf("to make one: (umask 077; head -c 32 /dev/urandom | base64 > %s)", file)
}
