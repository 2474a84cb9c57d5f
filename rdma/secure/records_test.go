package secure

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

// source is a connection with bytes that have come.
type source struct {
	net.Conn
	*bytes.Reader
}

func (s source) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// TestGivenUp has a server end the handshake before it has said anything, and
// after: only then it is known to have TLS.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	a := testcert.New(t)
	config := &tls.Config{Certificates: []tls.Certificate{a.Issue(t, "server", "192.0.2.1")}}
	for writes, want := range []string{"has no TLS, or that has waited too long", "after it had begun it"} {
		near, far := pair(t)
		go func() {
			if writes == 0 {
				near.(*net.TCPConn).CloseWrite()
			} else {
				tls.Server(ending{near.(*net.TCPConn)}, config).Handshake()
			}
		}()
		client := tls.Client(&records{Conn: far}, &tls.Config{RootCAs: a.Pool, ServerName: "192.0.2.1"})
		err := Explain(client.Handshake())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "no TLS") != (writes == 0) {
			t.Errorf("after %d writes: %v; want %q", writes, err, want)
		}
	}
}

// ending is a connection that ends after its first record.
type ending struct{ *net.TCPConn }

func (e ending) Write(b []byte) (int, error) {
	defer e.CloseWrite()
	return e.TCPConn.Write(b[:5+int(b[3])<<8+int(b[4])])
}

// TestRecords reads records with buffers of any size: a Read ends where a
// record does, so that what follows the last one is still there.
func TestRecords(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		var all []byte
		ends := map[int]bool{}
		for range 1 + r.IntN(8) {
			n := r.IntN(40) * r.IntN(2)
			all = append(all, 23, 3, 3, byte(n>>8), byte(n))
			for range n {
				all = append(all, byte(r.Uint32()))
			}
			ends[len(all)] = true
		}
		last := len(all)
		rest := []byte("of the program")
		in := source{Reader: bytes.NewReader(append(bytes.Clone(all), rest...))}
		c := &records{Conn: in}
		var got []byte
		for len(got) < last {
			buf := make([]byte, 1+r.IntN(64))
			n, err := c.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			for at := len(got) + 1; at < len(got)+n; at++ {
				if ends[at] {
					t.Fatalf("a Read from %d on of %d bytes goes over the end of a record at %d", len(got), n, at)
				}
			}
			got = append(got, buf[:n]...)
		}
		if left, err := io.ReadAll(in.Reader); !bytes.Equal(got, all) || !bytes.Equal(left, rest) {
			t.Fatalf("%q is left, %v", left, err)
		}
	}
}

// ended is a connection whose peer has said something and ended it.
type ended struct{ source }

var errEnded = errors.New("ended by the peer")

func (ended) Write([]byte) (int, error) { return 0, errEnded }

// TestLastWords has a peer refuse this side and end the connection while this
// side still writes: what the peer has said is read, and then what has failed.
func TestLastWords(t *testing.T) {
	t.Parallel()
	alert := []byte{21, 3, 3, 0, 2, 2, 116} // fatal, certificate required
	c := &records{Conn: ended{source{Reader: bytes.NewReader(alert)}}}
	for range 2 {
		if n, err := c.Write([]byte("finished")); n != 8 || err != nil {
			t.Errorf("Write returns %d, %v", n, err)
		}
	}
	got := make([]byte, len(alert))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, alert) {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := c.Read(got); err != errEnded {
		t.Errorf("then %v", err)
	}
}
