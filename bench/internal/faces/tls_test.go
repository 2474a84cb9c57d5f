package faces

import (
	"bytes"
	"crypto/tls"
	"testing"
)

// A stream of the face that all others are compared with when their packets
// are sealed is TLS 1.3, and carries what is sent.
func TestTLSFace(t *testing.T) {
	t.Parallel()
	passive, active := newBase(Config{Face: TLS, Addr: "127.0.0.1"}), newBase(Config{Face: TLS, Active: true})
	defer passive.Close()
	defer active.Close()
	addr, err := passive.Hello()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := active.Hello(); err != nil {
		t.Fatal(err)
	}
	sent := touched(100_000)
	got := make(chan []byte, 1)
	go func() {
		b := make([]byte, len(sent))
		c, err := passive.face.accept(t.Context())
		if err == nil {
			err = c.recv(b)
			c.close()
		}
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	c, err := active.face.dial(t.Context(), addr.(string))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.send(sent); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-got, sent) {
		t.Error("other bytes arrived")
	}
	if s := c.(netChannel).Conn.(*tls.Conn).ConnectionState(); s.Version != tls.VersionTLS13 {
		t.Errorf("version %x", s.Version)
	}
}
