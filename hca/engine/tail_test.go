package engine

import (
	"testing"
	"time"

	"github.com/gosoftroce/rocev2/ib"
	"github.com/gosoftroce/rocev2/rocev2"
	"github.com/gosoftroce/rocev2/transport"
)

// TestLastPacketLost: nothing follows the last packet of a message that would
// show that it is lost. With a probe timer of 80 µs, on a path of 10 µs, it is
// repaired within 400 µs of when it was sent, also on a connection that has not
// measured a round trip. So is the acknowledgement.
func TestLastPacketLost(t *testing.T) {
	t.Parallel()
	for _, op := range []ib.Opcode{ib.OpWrite, ib.OpRead} {
		for _, size := range []uint32{8, 4 << 10, 64 << 10} {
			for _, warm := range []int{0, 8} {
				for _, answer := range []bool{false, true} {
					w := newWorld(t, 1)
					w.rate, w.delay = 100e9, 5*time.Microsecond
					a, b := w.newPair(Config{MinProbe: 80 * time.Microsecond})
					a.mtu, b.mtu = rocev2.MTU4096, rocev2.MTU4096
					qa, _ := connectPair(a, b, true)
					for range warm {
						a.post(qa, op, b, size)
						a.waitOK(1)
					}
					lost := false
					w.change = func(h *host, p []transport.RxPacket) []transport.RxPacket {
						if lost || h != a == !answer || len(p) == 0 || !lastOfMessage(p[len(p)-1].Data) {
							return p
						}
						lost = true
						return p[:len(p)-1]
					}
					begin := w.now
					a.post(qa, op, b, size)
					a.waitOK(1)
					if took := w.now.Sub(begin); !lost || took > 400*time.Microsecond {
						t.Errorf("%v of %d bytes after %d others, the answer is lost: %v: it takes %v", op, size, warm, answer, took)
					}
				}
			}
		}
	}
}

// lastOfMessage reports whether a packet ends a request or an answer.
func lastOfMessage(data []byte) bool {
	info, _ := rocev2.Opcode(data[0]).Info()
	return info.Last
}
