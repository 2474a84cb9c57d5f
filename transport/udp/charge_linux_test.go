//go:build !portable

package udp

import (
	"testing"

	"github.com/gosoftroce/rocev2/qp"
	"github.com/gosoftroce/rocev2/transport"
)

// What queue pairs may have in flight to a peer fits into its receive buffer,
// whatever the size of the packets, also where each is a datagram of its own
// and the receiver does not read: half of the granted buffer as a window counts
// it, and a quarter of that beyond (package hca).
func TestWindowFitsTheReceiveBuffer(t *testing.T) {
	t.Parallel()
	const buffer = 212992 // what Linux grants by default
	families(t, func(t *testing.T, v6 bool) {
		for size := 0; size <= 4096; size += 16 {
			a, b, path := ends(t, v6, Config{RecvBuffer: buffer, DisableGSO: true, DisableGRO: true}, transport.Path{})
			window := b.Capabilities().RecvBuffer / 2
			n := (window + window/4) / (size + qp.PacketOverhead)
			tx := transport.NewTxBatch(n*(size+64) + 128<<10)
			for i := range n {
				put(t, tx, path, packet(i, size))
			}
			if err := a.Send(tx); err != nil {
				t.Fatal(err)
			}
			if lost := b.Stats().RxOverflow; lost != 0 {
				t.Errorf("%d of %d packets with %d bytes lost", lost, n, size)
			}
			a.Close()
			b.Close()
		}
	})
}
