package loopback

import (
	"testing"

	"github.com/gosoftroce/rocev2/transport"
	"github.com/gosoftroce/rocev2/verbs"
)

// TestMarkedDatagrams: what arrives with Congestion Experienced in its IP header
// is answered with a notification to the sender. Here the sender itself sets the
// mark, as a switch would.
func TestMarkedDatagrams(t *testing.T) {
	t.Parallel()
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			const congestionExperienced, size = 3, 64 << 10
			plain := func(l transport.Link, _ uint64) transport.Link { return l }
			a, b := devicePair(t, n, plain)
			check(t, a.qp.Connect(t.Context(), b.qp.Endpoint(), verbs.WithConfig(verbs.ConnectConfig{TrafficClass: congestionExperienced})))
			check(t, b.qp.Connect(t.Context(), a.qp.Endpoint()))
			a.post(verbs.SendWR{ID: 1, Opcode: verbs.Write, SGList: []verbs.SGE{a.mr.Slice(0, size)}, Remote: b.mr.RemoteAt(0)})
			a.waitOK(1)
			sent := b.qp.Stats()
			if sent.ECNMarked == 0 {
				t.Skip("this kernel does not carry the ECN field that a socket sets")
			}
			if sent.CNPsSent == 0 {
				t.Fatalf("%d packets arrived marked, and no CNP was sent", sent.ECNMarked)
			}
			// What b sends comes behind its first CNP.
			b.post(verbs.SendWR{ID: 2, Opcode: verbs.Write, SGList: []verbs.SGE{b.mr.Slice(0, 8)}, Remote: a.mr.RemoteAt(0)})
			b.waitOK(2)
			if got := a.qp.Stats(); got.CNPsReceived == 0 || got.WindowCuts == 0 || got.ECNMarked > 0 {
				t.Errorf("%d CNPs arrived, %d cuts, %d packets marked", got.CNPsReceived, got.WindowCuts, got.ECNMarked)
			}
		})
	}
}
