package secure

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

// TestKeysOfSession derives keys of queue pairs from one handshake: both sides
// have the same, and each direction, connection and number has its own.
func TestKeysOfSession(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	server := make(chan *Session, 1)
	go func() {
		config := &tls.Config{Certificates: []tls.Certificate{testcert.New(t).Issue(t, "server", "")}}
		s, _, err := Handshake(near, config, false)
		if err != nil {
			t.Error(err)
		}
		server <- s
	}()
	one, _, err := Handshake(far, &tls.Config{InsecureSkipVerify: true}, true)
	if err != nil {
		t.Fatal(err)
	}
	other := <-server
	var keys [][]byte
	for _, label := range []string{ownLabel, otherLabel} {
		for _, bound := range []string{"\x00\x01\x00\x02", "\x00\x02\x00\x01", "\x00\x01", ""} {
			for _, toClient := range []bool{false, true} {
				for _, spi := range []uint32{7, 8} {
					a, err := one.association(label, []byte(bound), spi, toClient)
					if err != nil {
						t.Fatal(err)
					}
					b, err := other.association(label, []byte(bound), spi, toClient)
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(a.Key, b.Key) || a.SPI != spi || len(a.Key) != a.Version.KeyLen() {
						t.Errorf("%s, %q, SPI %d: %v and %v", label, bound, spi, a, b)
					}
					keys = append(keys, a.Key)
				}
			}
		}
	}
	for i, a := range keys {
		for _, b := range keys[:i] {
			if bytes.Equal(a, b) {
				t.Fatalf("two of %d keys are the same", len(keys))
			}
		}
	}
}
