package attack

import (
	"testing"
	"testing/synctest"

	"github.com/gosoftroce/rocev2/fabric"
	"github.com/gosoftroce/rocev2/rocev2"
)

// TestLab: a lab works without an attack. Messages go both ways in order, a
// forged packet arrives, and a fence returns after it was handled.
func TestLab(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lab{ctx: t.Context(), net: Fabric(fabric.Config{})}
		l.open(false)
		c := l.connect(l.peer, l.victim, endConfig{})
		for i, d := range [][2]*end{{c.a, c.b}, {c.b, c.a}} {
			if err := l.stream(d[0], d[1], 3*streamDepth); err != nil {
				t.Errorf("direction %d: %v", i, err)
			}
		}
		before := c.b.qp.Stats()
		l.forge(l.peer.addr, rocev2.UDPPort, encode(rocev2.RCSendOnly, c.b.qp.QPN(), c.b.expects().Add(-1), payload(forged)))
		l.fence()
		if s := c.b.qp.Stats(); s.RxPackets != before.RxPackets+1 || s.TxPackets != before.TxPackets+1 {
			t.Errorf("a fence returned after %d packets and %d answers", s.RxPackets-before.RxPackets, s.TxPackets-before.TxPackets)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
}
