package secure

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"

	"github.com/gosoftroce/rocev2/internal/testcert"
)

// TestKeysOfOthers derives the keys of other queue pairs from one handshake:
// both sides have the same, and each direction, connection and number has its
// own.
func TestKeysOfOthers(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	server := tls.Server(near, minimal(&tls.Config{Certificates: []tls.Certificate{testcert.New(t).Issue(t, "server", "")}}))
	client := tls.Client(far, minimal(&tls.Config{InsecureSkipVerify: true}))
	done := make(chan error)
	go func() { done <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	states := [2]tls.ConnectionState{client.ConnectionState(), server.ConnectionState()}
	var keys [][]byte
	first, err := (&Conn{}).association(&states[0], 7, true)
	if err != nil {
		t.Fatal(err)
	}
	keys = append(keys, first.Key)
	for _, numbers := range [][]uint32{{1, 2, 3, 4}, {1, 2, 4, 3}, {1, 2, 3}, nil} {
		for _, toClient := range []bool{false, true} {
			for _, spi := range []uint32{7, 8} {
				o := Other{Numbers: numbers}
				a, err := o.association(&states[0], spi, toClient)
				if err != nil {
					t.Fatal(err)
				}
				b, err := o.association(&states[1], spi, toClient)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(a.Key, b.Key) || a.SPI != spi || len(a.Key) != a.Version.KeyLen() {
					t.Errorf("%v, SPI %d: %v and %v", numbers, spi, a, b)
				}
				keys = append(keys, a.Key)
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
