package secure

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

func psk(t *testing.T, secret string) *tls.Config {
	t.Helper()
	c, err := PSK([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const secret = "a secret of thirty-two bytes yes"

// shake has a handshake, in which each side says a byte at its end, and
// returns what the two sides make of it.
func shake(t *testing.T, client, server *tls.Config) (c, s tls.ConnectionState, atClient, atServer error) {
	near, far := pair(t)
	done := make(chan struct{})
	one := func(t *tls.Conn) (tls.ConnectionState, error) {
		defer t.NetConn().(*net.TCPConn).CloseWrite()
		if err := t.Handshake(); err != nil {
			return tls.ConnectionState{}, err
		}
		t.Write([]byte{1})
		_, err := io.ReadFull(t, make([]byte, 1))
		return t.ConnectionState(), err
	}
	go func() {
		defer close(done)
		c, atClient = one(tls.Client(far, client))
	}()
	s, atServer = one(tls.Server(near, server))
	<-done
	return c, s, atClient, atServer
}

func TestPSK(t *testing.T) {
	t.Parallel()
	a, b := psk(t, secret), psk(t, secret)
	first, _, atClient, atServer := shake(t, a, b)
	if atClient != nil || atServer != nil {
		t.Fatalf("client: %v, server: %v", atClient, atServer)
	}
	if first.Version != tls.VersionTLS13 || first.DidResume {
		t.Errorf("version %x, resumed %v", first.Version, first.DidResume)
	}
	if names := Names(&first); names != nil {
		t.Errorf("a certificate that was not verified gives names: %q", names)
	}
	// Each handshake has keys of its own.
	second, _, _, _ := shake(t, a, b)
	k1, err1 := first.ExportKeyingMaterial(ownLabel, nil, 32)
	k2, err2 := second.ExportKeyingMaterial(ownLabel, nil, 32)
	if err1 != nil || err2 != nil || bytes.Equal(k1, k2) {
		t.Errorf("two handshakes have one key: %v, %v", err1, err2)
	}
}

func TestOtherPSK(t *testing.T) {
	t.Parallel()
	good, other := psk(t, secret), psk(t, secret+"!")
	authority := testcert.New(t)
	stranger := &tls.Config{InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{authority.Issue(t, "rocev2 psk", "")}}
	thief := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{{ // shows the certificate, and has another key
		Certificate: good.Certificates[0].Certificate, PrivateKey: other.Certificates[0].PrivateKey,
	}}}
	for _, c := range []struct {
		name           string
		client, server *tls.Config
		mine           bool // the server finds it
		want           error
	}{
		{"client with another secret", other, good, false, ErrOtherPSK}, // both find it; the client first
		{"server with a certificate", good, stranger, false, ErrOtherPSK},
		{"client with a certificate", stranger, good, true, ErrOtherPSK},
		{"client without a certificate", &tls.Config{InsecureSkipVerify: true}, good, true, nil},
		{"client that has seen the certificate", thief, good, true, nil},
	} {
		_, _, atClient, atServer := shake(t, c.client, c.server)
		err := atClient
		if c.mine {
			err = atServer
		}
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: client: %v, server: %v", c.name, atClient, atServer)
		}
	}
}

func TestShortPSK(t *testing.T) {
	t.Parallel()
	if _, err := PSK(make([]byte, MinPSK)); err != nil {
		t.Error(err)
	}
	if _, err := PSK(make([]byte, MinPSK-1)); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("a short secret: %v", err)
	}
}

// pair returns a connection whose sides may both write first.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	return near, far
}

// recorder keeps what is written to a connection.
type recorder struct {
	net.Conn
	all bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.all.Write(p)
	return r.Conn.Write(p)
}

// TestReplayedPSK sends what a client has said in a handshake to the server
// again: what it has signed is of no use in another one.
func TestReplayedPSK(t *testing.T) {
	t.Parallel()
	config := psk(t, secret)
	near, far := pair(t)
	said := &recorder{Conn: far}
	done := make(chan error)
	go func() { done <- tls.Client(said, config).Handshake() }()
	if err := tls.Server(near, config).Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	near, far = pair(t)
	go func() {
		far.Write(said.all.Bytes())
		far.(*net.TCPConn).CloseWrite()
	}()
	if err := tls.Server(near, config).Handshake(); err == nil {
		t.Error("a server takes a handshake that was recorded")
	}
}

// TestReflectedPSK has a client talk to itself: that both sides have one key
// must not let an attacker be the server with what the client signs.
func TestReflectedPSK(t *testing.T) {
	t.Parallel()
	config := psk(t, secret)
	near, far := pair(t)
	a, b := tls.Client(near, config), tls.Client(far, config)
	go func() { b.Handshake(); far.Close() }()
	if err := a.Handshake(); err == nil {
		t.Error("two clients have a handshake with each other")
	}
}
