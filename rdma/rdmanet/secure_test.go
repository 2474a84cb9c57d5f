package rdmanet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/internal/testcert"
	"github.com/gosoftroce/rocev2/rdma/cm"
	"github.com/gosoftroce/rocev2/verbs"
	"github.com/gosoftroce/rocev2/verbs/verbstest"
)

// secureSides are two devices on a network, a listener with TLS on one of them,
// and a dialer on the other. They have new keys each 50 packets.
func secureSides(t *testing.T, network fabric.Config) (l *Listener, at string, d *Dialer) {
	t.Helper()
	a, b := verbstest.Devices(t, verbstest.Config{Network: network, Device: verbs.Config{Sealing: true, RekeyPackets: 50}})
	authority := testcert.New(t)
	cert := authority.Issue(t, "server", a.Addr().String())
	at = net.JoinHostPort(a.Addr().String(), "7471")
	lc := ListenConfig{Device: a, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}
	l, err := lc.Listen(t.Context(), Network, at)
	must(t, err)
	return l, at, &Dialer{Device: b, TLS: &tls.Config{RootCAs: authority.Pool}}
}

func TestSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, at, d := secureSides(t, fabric.Config{})
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Write(body)
		})}
		done := make(chan struct{})
		go func() { server.Serve(l); close(done) }()
		transport := &http.Transport{DialContext: d.DialContext}
		client := http.Client{Transport: transport}
		sent := bytes.Repeat([]byte("a body "), 100_000)
		for range 3 {
			r, err := client.Post("http://"+at, "", bytes.NewReader(sent))
			must(t, err)
			got, err := io.ReadAll(r.Body)
			must(t, err)
			if !bytes.Equal(got, sent) {
				t.Fatalf("%d bytes have come back", len(got))
			}
			r.Body.Close()
		}
		transport.CloseIdleConnections()

		c, err := d.dial(t.Context(), Network, at)
		must(t, err)
		if s, ok := c.ConnectionState(); !ok || s.PeerCertificates[0].Subject.CommonName != "server" {
			t.Errorf("%v, %+v", ok, s)
		}
		must(t, c.Close())
		plain := Dialer{Device: d.Device}
		c, err = plain.dial(t.Context(), Network, at)
		must(t, err)
		c.SetDeadline(time.Now().Add(time.Minute))
		if n, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if got, err := io.ReadAll(c); bytes.Contains(got, []byte("HTTP")) {
			t.Errorf("a listener with TLS answers in clear: %q, %v", got, err)
		}
		c.Close()
		other := Dialer{Device: d.Device, TLS: &tls.Config{RootCAs: x509.NewCertPool()}}
		if _, err := other.dial(t.Context(), Network, at); err == nil || !strings.Contains(err.Error(), "unknown authority") {
			t.Errorf("another authority: %v", err)
		}
		must(t, server.Close())
		<-done
		if s := l.Device().SealCounters(); s.Opened == 0 || s.Forged != 0 || s.Unknown != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute) // what lingers ends
	})
}

func TestSecuredOnABadPath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, at, d := secureSides(t, fabric.Config{Port: fabric.PortConfig{Loss: 0.05, Reorder: 0.05, Duplicate: 0.05, Corrupt: 0.01, Delay: 20 * time.Microsecond}})
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					io.Copy(c, c)
					c.Close()
				}()
			}
		}()
		sent := bytes.Repeat([]byte("bytes "), 50_000)
		for range 10 {
			c, err := d.dial(t.Context(), Network, at)
			must(t, err)
			go func() {
				c.Write(sent)
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("%d of %d bytes have come back: %v", len(got), len(sent), err)
			}
			must(t, c.Close())
		}
		must(t, l.Close())
		if s := l.Device().SealCounters(); s.Rekeys < 15 || s.NoKey != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Minute)
	})
}

// TestChangedGreeting has the two sides see different greetings, as where an
// attacker has changed where a ring lies: nothing opens, and no program gets
// the connection.
func TestChangedGreeting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, at, d := secureSides(t, fabric.Config{})
		got := make(chan net.Conn, 1)
		go func() {
			if c, err := l.Accept(); err == nil {
				got <- c
			}
		}()
		o, err := d.Options.withDefaults()
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := d.dialOn(ctx, use{dev: d.Device}, netip.MustParseAddrPort(at), o)
		must(t, err)
		c.secured.greeting[3] ^= 1
		if err := d.secure(ctx, c, at); err == nil {
			t.Error("the connection is there, though the sides have seen different greetings")
		}
		time.Sleep(time.Minute)
		select {
		case <-got:
			t.Error("the listener's program has it")
		default:
		}
		if s := d.Device.SealCounters(); s.Forged == 0 {
			t.Errorf("%+v", s)
		}
		must(t, l.Close())
		time.Sleep(time.Minute)
	})
}

// TestOnNotSecured has the program of a listener told of each handshake that
// fails, and not of those that the listener ends itself.
func TestOnNotSecured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := verbstest.Devices(t, verbstest.Config{Device: verbs.Config{Sealing: true, RekeyPackets: 50}})
		authority := testcert.New(t)
		cert := authority.Issue(t, "server", a.Addr().String())
		told := make(chan string, 10)
		lc := ListenConfig{Device: a, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, OnNotSecured: func(client net.Addr, err error) {
			told <- fmt.Sprint(client.(*cm.Addr).Addr() == b.Addr(), " ", err)
		}}
		at := net.JoinHostPort(a.Addr().String(), "7471")
		l, err := lc.Listen(t.Context(), Network, at)
		must(t, err)
		go l.Accept()

		stranger := Dialer{Device: b, TLS: &tls.Config{RootCAs: x509.NewCertPool()}}
		if _, err := stranger.dial(t.Context(), Network, at); err == nil {
			t.Error("another authority: it is connected")
		}
		if got := <-told; !strings.HasPrefix(got, "true ") || !strings.Contains(got, "bad certificate") {
			t.Errorf("another authority: %s", got)
		}
		plain := Dialer{Device: b}
		c, err := plain.dial(t.Context(), Network, at)
		must(t, err)
		_, err = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
		must(t, err)
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("without TLS: read %d bytes, %v, want io.EOF", n, err)
		}
		if got := <-told; !strings.Contains(got, "does not look like a TLS handshake") {
			t.Errorf("without TLS: %s", got)
		}
		c.Close()
		silent, err := plain.dial(t.Context(), Network, at)
		must(t, err)
		if got := <-told; !strings.Contains(got, context.DeadlineExceeded.Error()) {
			t.Errorf("a silent one: %s", got)
		}
		silent.Close()
		last, err := plain.dial(t.Context(), Network, at)
		must(t, err)
		time.Sleep(time.Second)
		must(t, l.Close())
		last.Close()
		good := Dialer{Device: b, TLS: &tls.Config{RootCAs: authority.Pool}}
		if _, err := good.dial(t.Context(), Network, at); err == nil {
			t.Error("a listener that is closed takes a connection")
		}
		time.Sleep(time.Minute) // what lingers ends
		select {
		case got := <-told:
			t.Errorf("the listener was closed: %s", got)
		default:
		}
	})
}
