//go:build !linux || portable

package udp

import (
	"testing"

	"github.com/gosoftroce/rocev2/transport"
)

// TestPortableOddLengths: datagrams that are too long for a packet, or too
// short, are malformed. However many come, they are no error of the socket, for
// which it would be left alone.
func TestPortableOddLengths(t *testing.T) {
	t.Parallel()
	a, b, path := hosts(t, false)
	rx := transport.NewRxBatch(8)
	long, n := make([]byte, transport.MaxSealedLen+2), 0
	for i := range 3 * maxRefused {
		data := long[:len(long)-i%2]
		if i%32 == 31 {
			data = long[:1]
		}
		if err := a.own.send(data, path.Dst, path.DstPort, 0); err != nil {
			t.Fatal(err)
		}
		if n++; i%8 != 7 {
			continue
		}
		for b.Stats().RxMalformed < uint64(n) {
			if err := b.Wait(); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Recv(rx); got != 0 || err != nil {
				t.Fatalf("after %d datagrams: %d packets, %v", n, got, err)
			}
		}
	}
	if s := b.Stats().SocketErrors; s != 0 || b.own.asleep() != 0 {
		t.Errorf("%d errors of the socket, which is left alone for %v", s, b.own.asleep())
	}
}
